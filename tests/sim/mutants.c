/* mutants.c - tests the simulation itself: would it notice if the protocol were wrong?
 *
 *     mutants PROTOCOL [SEEDS]
 *
 * Runs the program PROTOCOL (protocol.c) with one error at a time built into the protocol, and
 * expects it to find each within SEEDS (2,000) seeds.  Speaks TAP.                      */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* By number, as in GWI_MUTANT(). */
static const char *const mutants[] = {
    "",
    "an operation overtakes the last word of a replica that ended",
    "a request that comes before its key is sent away again",
    "changes by the owner's workers are not marked",
    "an answer overtakes the news that a replica needs to show its worker's writes",
    "a change that its holder has counted is counted again",
    "a forgotten delta: changes of a replica do not reach the owner's value",
    "other replicas do not hear of a change",
    "the home lets a node move a key that it no longer owns",
    "a move forgets a replica",
    "a queue lost in a move: requests that waited for the key",
    "changes on their way are forgotten when the replica becomes the key",
    "a delta applied twice: no tombstone for changes that were counted",
    "untold changes are forgotten when the replica becomes the key",
    "a replica dropped before its flush",
    "a stale counter accepted: older news replaces newer",
    "changes count as arrived that have not",
    "wait_sync does not ask owners for news",
    "the home forgets who the new owner is",
    "the home of changes is told one too few of them, so one counts twice",
    "a set of a replica is told as an addition",
    "changes just before a move do not reach the replicas",
    "a set is overtaken by an older refresh",
    "wait_sync does not act on intents that are due",
    "changes by the owner's workers that were not looked at do not reach a replica",
    "a replica that was changed while it told something does not tell again",
    "of pushes that are done together the last is left out",
    "an answer to several requests counts one too few",
    "of vectors that are read together the last is left out",
    "pushes are done together also where replicas must hear of them",
    "when the patience of a replica ends is forgotten",
    "a second question about a key takes another way than the first",
};

static int run(const char *program, int mutant, const char *seeds)
{
    char number[16];
    int status;

    snprintf(number, sizeof number, "%d", mutant);
    pid_t pid = fork();
    if (pid == 0) {
        if (mutant > 0 && (freopen("/dev/null", "w", stdout) == NULL ||
                           freopen("/dev/null", "w", stderr) == NULL))
            _exit(127);
        execl(program, program, "--seeds", seeds, "--mutant", number, (char *)NULL);
        _exit(127);
    }
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int main(int argc, char **argv)
{
    int n = (int)(sizeof mutants / sizeof mutants[0]), missed = 0;
    const char *seeds = argc > 2 ? argv[2] : "2000";

    if (argc < 2) {
        fprintf(stderr, "which program? mutants PROTOCOL [SEEDS]\n");
        return 2;
    }
    printf("1..%d\n", n - 1);
    fflush(stdout); /* else the first child says it too */
    for (int m = 1; m < n; m++) {
        int result = run(argv[1], m, seeds);
        int found = result == 1 || result == 128;
        missed += !found;
        printf("%sok %d - found: %s\n", found ? "" : "not ", m, mutants[m]);
        fflush(stdout);
    }
    return missed > 0;
}
