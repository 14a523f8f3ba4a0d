/* child.c - the program godwit-blas: loads one library, answers one order, ends. */
#include "backend/child.h"

#include "backend/blas.h"
#include "base/error.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static int obey(const gwi_child_order *order, gwi_child_answer *answer)
{
    gw_blas *blas;
    int err = gw_blas_open(order->path, &blas);

    if (err < 0)
        return err;
    if (order->what == GWI_CHILD_PROBE)
        gwi_blas_identify(blas, &answer->info);
    else
        err = gwi_bench_run(blas, &order->bench, &answer->speed);
    gw_blas_close(blas);
    return err;
}

int main(void)
{
    static gwi_child_order order;
    static gwi_child_answer answer = {.magic = GWI_CHILD_MAGIC, .size_bytes = sizeof answer};

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (recv(GWI_CHILD_FD, &order, sizeof order, MSG_WAITALL) != (ssize_t)sizeof order ||
        order.magic != GWI_CHILD_MAGIC || order.size_bytes != sizeof order) {
        fprintf(stderr, "godwit-blas is a part of Godwit's library, which starts it itself; "
                        "see `godwit backend list`\n");
        return 2;
    }
    answer.err = obey(&order, &answer);
    if (answer.err < 0)
        snprintf(answer.error, sizeof answer.error, "%s", gw_last_error());
    send(GWI_CHILD_FD, &answer, sizeof answer, MSG_NOSIGNAL);
    _exit(0); /* not the library's own endings: some hang, some crash */
}
