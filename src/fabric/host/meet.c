/* meet.c - gathering a job's processes over an abstract Unix socket. */
#include "fabric/host/meet.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/thread.h"
#include "fabric/host/hello.h"
#include "fabric/host/process.h"
#include "fabric/ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100

struct guest {
    int fd;
    gwi_hello hello;
    int rank; /* as asked for, then as given */
};

struct meeting {
    const gwi_job *job;
    gwi_hello hello; /* our own */
    int64_t deadline_ns;
    pid_t launcher; /* our parent at the start, or 0 */
    struct sockaddr_un name;
    socklen_t name_bytes;
    /* the gatherer only: */
    int listener;
    struct guest *guests; /* [0] is the gatherer itself, fd -1 */
    int n_guests;
    gwi_obituary ended;                    /* rank -1: nobody has */
    char refused[2 * GWI_HELLO_WHY_BYTES]; /* the last one sent away, and why */
};

/* Where the processes of a job meet.  Returns the length of the name. */
static socklen_t name_of(const char *job_name, struct sockaddr_un *ret_name)
{
    uint64_t a = gwi_hash_bytes(job_name, strlen(job_name), 1);
    uint64_t b = gwi_hash_bytes(job_name, strlen(job_name), 2);

    *ret_name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int n = snprintf(ret_name->sun_path + 1, sizeof ret_name->sun_path - 1,
                     "godwit-%u-%016llx%016llx", (unsigned)getuid(), (unsigned long long)a,
                     (unsigned long long)b);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

/* What may end a wait at every tick. */
static int look_around(const struct meeting *m)
{
    if (gwi_interrupted())
        return gwi_fail(GW_EINTR, "interrupted by a signal while joining the job");
    if (m->launcher != 0 && getppid() != m->launcher)
        return gwi_fail(GW_EPEER, "the launcher (process %d) ended while this process was joining",
                        (int)m->launcher);
    int err = m->job->watch != NULL ? m->job->watch(m->job->watch_ctx) : 0;
    if (err < 0)
        return err;
    return gwi_now_ns() >= m->deadline_ns ? GW_ETIMEOUT : 0;
}

static int peer_is_same_user(int fd, struct ucred *ret_who)
{
    socklen_t n = sizeof *ret_who;

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_who, &n) == 0 && ret_who->uid == geteuid();
}

static int send_answer(int to, const gwi_answer *answer, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct iovec part = {(void *)(uintptr_t)answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

    if (fd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n;
    do
        n = sendmsg(to, &message, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof *answer ? 0 : -1;
}

/* The descriptor that came with a message, or -1.  One that nobody asked for is
 * closed: there is room for two. */
static int take_descriptor(struct msghdr *message)
{
    struct cmsghdr *c = CMSG_FIRSTHDR(message);
    int taken = -1, fd;

    if (c == NULL || c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
        return -1;
    for (size_t at = CMSG_LEN(0); at + sizeof fd <= c->cmsg_len; at += sizeof fd) {
        memcpy(&fd, (char *)c + at, sizeof fd);
        if (taken < 0)
            taken = fd;
        else
            close(fd);
    }
    return taken;
}

/* As gwi_answer_read(), or 0 if the other side has gone.  With GWI_WELCOME the
 * caller owns `*ret_fd`. */
static int receive_answer(int from, const gwi_hello *mine, pid_t gatherer, gwi_answer *ret_answer,
                          int *ret_fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof *ret_fd)];
    } control = {0};
    char packet[sizeof(gwi_answer) + 1]; /* one more shows that it is too long */
    struct iovec part = {packet, sizeof packet};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t n = recvmsg(from, &message, MSG_CMSG_CLOEXEC);

    if (n <= 0)
        return 0;
    int fd = take_descriptor(&message);
    int status = gwi_answer_read(mine, packet, (size_t)n, fd >= 0, gatherer, ret_answer);
    if (status == GWI_WELCOME)
        *ret_fd = fd;
    else if (fd >= 0)
        close(fd);
    return status;
}

/* the gatherer */

static int rank_is_here(const struct meeting *m, int rank)
{
    for (int i = 0; i < m->n_guests; i++)
        if (m->guests[i].rank == rank)
            return 1;
    return 0;
}

/* Who has not come.  Ranks by order of arrival have no names yet. */
static void list_missing(const struct meeting *m, char *text, size_t room)
{
    int shown[GWI_RANKS_SHOWN], n = 0;
    int total = m->job->size - m->n_guests;

    if (rank_is_here(m, -1)) {
        snprintf(text, room, "%d of %d processes", total, m->job->size);
        return;
    }
    for (int rank = 0; rank < m->job->size && n < GWI_RANKS_SHOWN; rank++)
        if (!rank_is_here(m, rank))
            shown[n++] = rank;
    gwi_ranks_text(shown, total, text, room);
}

static int came_already(const struct meeting *m, const gwi_hello *h, char why[GWI_HELLO_WHY_BYTES])
{
    for (int i = 0; i < m->n_guests; i++)
        if (h->rank >= 0 && m->guests[i].rank == h->rank) {
            snprintf(why, GWI_HELLO_WHY_BYTES, "rank %d has joined already, as process %d", h->rank,
                     m->guests[i].hello.pid);
            return 1;
        }
    return 0;
}

static void refuse(struct meeting *m, int fd, pid_t pid, int rank, const char *why)
{
    gwi_answer answer = {.status = GW_EDISAGREE};

    if (rank >= 0)
        snprintf(m->refused, sizeof m->refused, "rank %d (process %d) was refused: %s", rank,
                 (int)pid, why);
    else
        snprintf(m->refused, sizeof m->refused, "process %d was refused: %s", (int)pid, why);
    snprintf(answer.text, sizeof answer.text, "%s", m->refused);
    send_answer(fd, &answer, -1);
    close(fd);
}

/* A connection that says something within a second is a guest or is refused. */
static void admit(struct meeting *m)
{
    char packet[sizeof(gwi_hello) + 1]; /* one more shows that it is too long */
    char why[GWI_HELLO_WHY_BYTES];
    gwi_hello hello = {.rank = -1};
    struct ucred who;
    ssize_t n = 0;

    int fd = accept4(m->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct pollfd p = {fd, POLLIN, 0};
    if (!peer_is_same_user(fd, &who) || poll(&p, 1, 1000) != 1 ||
        (n = recv(fd, packet, sizeof packet, MSG_DONTWAIT)) <= 0) {
        close(fd);
        return;
    }
    if (gwi_obituary_read(&m->hello, packet, (size_t)n, &m->ended)) {
        close(fd);
        return;
    }
    if (!gwi_hello_read(&m->hello, packet, (size_t)n, who.pid, &hello, why) ||
        came_already(m, &hello, why)) {
        refuse(m, fd, who.pid, hello.rank, why);
        return;
    }
    gwi_answer noted = {.status = GWI_NOTED, .rank = m->job->rank};
    send_answer(fd, &noted, -1);
    m->guests[m->n_guests++] = (struct guest){.fd = fd, .hello = hello, .rank = hello.rank};
}

static int gone(const struct guest *g)
{
    if (g->rank >= 0)
        return gwi_fail(GW_EPEER, "rank %d (process %d) ended while the job was joining", g->rank,
                        g->hello.pid);
    return gwi_fail(GW_EPEER, "process %d ended while the job was joining, before it had a rank",
                    g->hello.pid);
}

static int timed_out(const struct meeting *m)
{
    char missing[512];

    list_missing(m, missing, sizeof missing);
    return gwi_fail(GW_ETIMEOUT,
                    "%s did not join within %g s%s%s; start all %d processes of the job, or "
                    "raise GODWIT_TIMEOUT",
                    missing, (double)m->job->timeout_ns / 1e9, m->refused[0] != '\0' ? "; " : "",
                    m->refused, m->job->size);
}

/* Wait until all guests are here. */
static int gather(struct meeting *m)
{
    struct pollfd *polls = calloc((size_t)m->job->size + 1, sizeof *polls);
    int err = 0;

    if (polls == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", m->job->size);
    while (err == 0 && m->n_guests < m->job->size) {
        int n = m->n_guests;
        polls[0] = (struct pollfd){m->listener, POLLIN, 0};
        for (int i = 1; i < n; i++)
            polls[i] = (struct pollfd){m->guests[i].fd, POLLIN, 0};
        int ready = poll(polls, (nfds_t)n, TICK_MS);
        err = look_around(m);
        if (err == GW_ETIMEOUT)
            err = timed_out(m);
        /* A guest has nothing more to say: if it is readable it has gone. */
        for (int i = 1; ready > 0 && err == 0 && i < n; i++)
            if (polls[i].revents != 0)
                err = gone(&m->guests[i]);
        if (ready > 0 && err == 0 && polls[0].revents != 0)
            admit(m);
        if (err == 0 && m->ended.rank >= 0)
            err = gwi_fail(GW_EPEER, "rank %d (process %d) ended before it joined the job",
                           m->ended.rank, m->ended.pid);
    }
    free(polls);
    return err;
}

/* Who did not ask for a rank gets the free ones, in the order of arrival. */
static void give_ranks(struct meeting *m)
{
    int next = 0;

    for (int i = 0; i < m->n_guests; i++) {
        if (m->guests[i].rank >= 0)
            continue;
        while (rank_is_here(m, next))
            next++;
        m->guests[i].rank = next;
    }
}

static int call_prepare(const struct meeting *m, gwi_meet_prepare *prepare, void *ctx, int *ret_fd)
{
    gwi_attendee *all = calloc((size_t)m->job->size, sizeof *all);

    if (all == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", m->n_guests);
    for (int i = 0; i < m->n_guests; i++) {
        const struct guest *g = &m->guests[i];
        all[g->rank] = (gwi_attendee){g->rank, g->hello.pid, g->hello.start};
    }
    int err = prepare(ctx, all, m->n_guests, ret_fd);
    free(all);
    return err;
}

/* Tell all guests how it ended. */
static void tell_guests(const struct meeting *m, int err, int fd)
{
    gwi_answer answer = {.status = err < 0 ? err : GWI_WELCOME};

    if (err < 0)
        snprintf(answer.text, sizeof answer.text, "%s", gw_last_error());
    for (int i = 1; i < m->n_guests; i++) {
        answer.rank = m->guests[i].rank;
        /* One that has died meanwhile is found by its pidfd. */
        send_answer(m->guests[i].fd, &answer, err < 0 ? -1 : fd);
        close(m->guests[i].fd);
    }
}

static int be_gatherer(struct meeting *m, gwi_meet_prepare *prepare, void *ctx, int *ret_rank,
                       int *ret_fd)
{
    int fd = -1, err;

    m->guests = calloc((size_t)m->job->size, sizeof *m->guests);
    if (m->guests == NULL)
        return gwi_fail(GW_ENOMEM, "joining a job of %d processes", m->job->size);
    m->guests[m->n_guests++] = (struct guest){.fd = -1, .hello = m->hello, .rank = m->job->rank};
    err = gather(m);
    if (err == 0) {
        give_ranks(m);
        err = call_prepare(m, prepare, ctx, &fd);
    }
    tell_guests(m, err, fd);
    if (err == 0) {
        *ret_rank = m->guests[0].rank;
        *ret_fd = fd;
    }
    free(m->guests);
    return err;
}

/* a guest */

static int gatherer_gone(pid_t pid, int rank)
{
    if (rank >= 0)
        return gwi_fail(GW_EPEER,
                        "rank %d (process %d), which gathered the job, ended while it was joining",
                        rank, (int)pid);
    return gwi_fail(GW_EPEER, "process %d, which gathered the job, ended while it was joining",
                    (int)pid);
}

/* Returns GW_EAGAIN if the gatherer went before it noted us: there may be another. */
static int be_guest(struct meeting *m, int fd, int *ret_rank, int *ret_fd)
{
    int noted = 0;
    gwi_answer answer = {.rank = -1}; /* the gatherer's rank, until it welcomes us */
    struct ucred gatherer;

    if (!peer_is_same_user(fd, &gatherer))
        return gwi_fail(GW_EPEER,
                        "the name of this job is held by process %d of user %d; choose another "
                        "job name",
                        (int)gatherer.pid, (int)gatherer.uid);
    if (send(fd, &m->hello, sizeof m->hello, MSG_NOSIGNAL) != (ssize_t)sizeof m->hello)
        return GW_EAGAIN;
    /* The gatherer came first and so gives up first, with the better sentence. */
    if (m->deadline_ns < GWI_FOREVER - 2 * GWI_SECOND)
        m->deadline_ns += 2 * GWI_SECOND;
    for (;;) {
        struct pollfd p = {fd, POLLIN, 0};
        if (poll(&p, 1, TICK_MS) == 1) {
            int status = receive_answer(fd, &m->hello, gatherer.pid, &answer, ret_fd);
            if (status == 0)
                return noted ? gatherer_gone(gatherer.pid, answer.rank) : GW_EAGAIN;
            if (status < 0)
                return status;
            if (status == GWI_WELCOME)
                break;
            noted = 1;
        }
        int err = look_around(m);
        if (err == GW_ETIMEOUT)
            return gwi_fail(
                err,
                "the job was not complete within %g s; process %d gathers it and knows who is "
                "missing",
                (double)m->job->timeout_ns / 1e9, (int)gatherer.pid);
        if (err < 0)
            return err;
    }
    *ret_rank = answer.rank;
    return 0;
}

/* Become the gatherer (1, listening) or a guest (0, connected). */
static int find_role(struct meeting *m, int *ret_socket)
{
    const struct sockaddr *name = (const struct sockaddr *)&m->name;

    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return gwi_fail_errno("making a socket to meet the other processes");
        if (bind(fd, name, m->name_bytes) == 0 && listen(fd, SOMAXCONN) == 0) {
            *ret_socket = fd;
            return 1;
        }
        if (connect(fd, name, m->name_bytes) == 0) {
            *ret_socket = fd;
            return 0;
        }
        /* Refused: bound but not listening yet, or just closed. */
        int refused = errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR;
        int err = refused ? look_around(m)
                          : gwi_fail_errno("meeting the other processes of the job");
        close(fd);
        if (err == GW_ETIMEOUT)
            return gwi_fail(err, "the job's meeting point did not answer within %g s",
                            (double)m->job->timeout_ns / 1e9);
        if (err < 0)
            return err;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

int gwi_meet(const gwi_job *job, uint64_t layout, gwi_meet_prepare *prepare, void *ctx,
             int *ret_rank, int *ret_fd)
{
    struct meeting m = {
        .job = job,
        .hello = gwi_hello_of(job, layout),
        .deadline_ns = gwi_deadline_ns(job->timeout_ns),
        .launcher = job->launched ? getppid() : 0,
        .listener = -1,
        .ended = {.rank = -1},
    };
    int fd = -1, err;

    if (job->size == 1) {
        gwi_attendee me = {0, getpid(), gwi_process_start(getpid())};
        *ret_rank = 0;
        return prepare(ctx, &me, 1, ret_fd);
    }
    m.name_bytes = name_of(job->name, &m.name);
    int64_t deadline_ns = m.deadline_ns;
    do {
        m.deadline_ns = deadline_ns;
        int role = find_role(&m, &fd);
        if (role < 0)
            return role;
        m.listener = fd;
        err = role == 1 ? be_gatherer(&m, prepare, ctx, ret_rank, ret_fd)
                        : be_guest(&m, fd, ret_rank, ret_fd);
        close(fd);
    } while (err == GW_EAGAIN);
    return err;
}

/* a launcher */

int gwi_meet_tell_end(const char *job_name, int rank, pid_t pid)
{
    gwi_obituary obituary = gwi_obituary_of(rank, pid);
    struct sockaddr_un name;
    socklen_t name_bytes = name_of(job_name, &name);
    struct ucred who;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return 0;
    int told = connect(fd, (const struct sockaddr *)&name, name_bytes) == 0 &&
               peer_is_same_user(fd, &who) &&
               send(fd, &obituary, sizeof obituary, MSG_NOSIGNAL) == (ssize_t)sizeof obituary;
    close(fd);
    return told;
}
