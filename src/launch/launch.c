/* launch.c - the way into a launch: what is asked for is checked, then run. */
#include "launch/launch.h"

#include "base/clock.h"
#include "base/error.h"
#include "launch/job.h"

#include <fcntl.h>
#include <unistd.h>

#define MOST_RANKS 4096 /* as GODWIT_SIZE allows */

static int check(const gw_launch_options *opt)
{
    if (opt == NULL || opt->size_bytes < sizeof *opt)
        return gwi_fail(GW_EINVAL, "size_bytes is %zu, not sizeof(gw_launch_options), %zu",
                        opt == NULL ? 0 : opt->size_bytes, sizeof *opt);
    if (opt->n_ranks < 1 || opt->n_ranks > MOST_RANKS)
        return gwi_fail(GW_EINVAL, "a job of %d ranks; it can have 1 to %d", opt->n_ranks,
                        MOST_RANKS);
    if (opt->node_size < 0 || opt->node_size > MOST_RANKS)
        return gwi_fail(GW_EINVAL, "nodes of %d ranks; they can have 1 to %d", opt->node_size,
                        MOST_RANKS);
    if (opt->argv == NULL || opt->argv[0] == NULL || opt->argv[0][0] == '\0')
        return gwi_fail(GW_EINVAL, "no program to run is given");
    return 0;
}

/* If stdin, stdout or stderr is closed, a pipe of ours would take its number.
 * Fill the gaps; returns how many, which are the numbers in `ret_fds`. */
static int fill_standard(int ret_fds[3])
{
    int n = 0;

    for (int fd = 0; fd < 3; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int opened = open("/dev/null", O_RDWR);
        if (opened == fd)
            ret_fds[n++] = fd;
        else if (opened >= 0)
            close(opened);
    }
    return n;
}

int gwi_launch(const gw_launch_options *opt, const gwi_launch_times *times, int *ret_exit_code)
{
    int filled[3];

    int err = check(opt);
    if (err < 0)
        return err;
    int n_filled = fill_standard(filled);
    err = gwi_job_run(opt, times, ret_exit_code);
    while (n_filled > 0)
        close(filled[--n_filled]);
    return err;
}

int gw_launch(const gw_launch_options *opt, int *ret_exit_code)
{
    static const gwi_launch_times times = {
        .grace_ns = 5 * GWI_SECOND,
        .term_ns = 2 * GWI_SECOND,
        .drain_ns = GWI_SECOND / 2,
        .press_ns = GWI_SECOND / 5,
    };

    return gwi_launch(opt, &times, ret_exit_code);
}
