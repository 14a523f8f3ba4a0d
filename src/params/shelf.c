/* shelf.c - renames in the right order. */
#include "params/shelf.h"
#include "base/error.h"
#include "base/random.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SAVING ".saving-"
#define SAVED "save-"
#define LIST "." GWI_MANIFEST_FILE "-"

int gwi_fail_file(const char *doing, const char *path)
{
    return gwi_fail(GW_ESYS, "cannot %s %s: %s", doing, path, strerror(errno));
}

int gwi_shelf_name(char ret_save[GWI_SAVE_ID], char *ret_created, size_t room)
{
    time_t now = time(NULL);
    uint32_t chance = 0;
    struct tm utc;
    char stamp[20];
    int err = gwi_random_entropy(&chance, sizeof chance);

    if (err < 0)
        return err;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%d-%H%M%S", &utc);
    snprintf(ret_save, GWI_SAVE_ID, "%s-%08x", stamp, (unsigned)chance);
    strftime(ret_created, room, "%Y-%m-%dT%H:%M:%SZ", &utc);
    return 0;
}

void gwi_shelf_part_path(const char *dir, const char *save, int rank, char *ret_path, size_t room)
{
    snprintf(ret_path, room, "%s/" SAVING "%s/part-%05d.safetensors", dir, save, rank);
}

/* removing */

static int is_part(const char *name)
{
    int rank, n = 0;

    return sscanf(name, "part-%5d.safetensors%n", &rank, &n) == 1 && n > 0 && name[n] == 0;
}

/* A directory of parts.  Whatever else somebody has put there stays, and it with it. */
static void remove_parts(int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (list == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (is_part(entry->d_name))
            unlinkat(fd, entry->d_name, 0);
    closedir(list);
    unlinkat(dir_fd, name, AT_REMOVEDIR);
}

/* Whether a name is one of ours, of another save than `keep` and `keep_too`. */
static int is_of_others(const char *name, const char *prefix, const char *keep,
                        const char *keep_too)
{
    size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 && gwi_manifest_is_id(name + n) &&
           strcmp(name + n, keep) != 0 && strcmp(name + n, keep_too) != 0;
}

/* What killed saves left.  `saves`: also what has been renamed already, which is what the list
 * does not name. */
static void tidy(gwi_shelf *shelf, int saves)
{
    int fd = openat(shelf->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (list == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        if (is_of_others(name, SAVING, shelf->save, "") ||
            (saves && is_of_others(name, SAVED, shelf->save, shelf->old)))
            remove_parts(shelf->fd, name);
        else if (is_of_others(name, LIST, shelf->save, ""))
            unlinkat(shelf->fd, name, 0);
    }
    closedir(list);
}

/* beginning */

/* Make the directory, and those above it. */
static int make_directory(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s", dir);
    for (char *at = path + 1; *at != 0; at++)
        if (*at == '/') {
            *at = 0;
            mkdir(path, 0777); /* what matters is whether the last one is there */
            *at = '/';
        }
    if (mkdir(path, 0777) == 0 || errno == EEXIST)
        return 0;
    return gwi_fail_file("make the directory", dir);
}

static int sync_directory(int fd, const char *path)
{
    /* Some file systems have nothing to do there and say so. */
    return fsync(fd) == 0 || errno == EINVAL ? 0 : gwi_fail_file("write", path);
}

static int sync_parent(const char *dir)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%.*s/..", PATH_MAX - 8, dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0; /* may be searched but not read: nothing can be done */
    int err = sync_directory(fd, path);
    close(fd);
    return err;
}

static int take_lock(gwi_shelf *shelf)
{
    if (flock(shelf->fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0; /* it has it, or this file system has no locks */
    return gwi_fail(GW_ESTATE, "another job saves into '%s' now; let each have its own directory",
                    shelf->dir);
}

int gwi_shelf_begin(gwi_shelf *shelf, const char *dir, const char *save)
{
    char name[64];
    gwi_manifest old = {0};

    *shelf = (gwi_shelf){.fd = -1};
    snprintf(shelf->dir, sizeof shelf->dir, "%s", dir);
    snprintf(shelf->save, sizeof shelf->save, "%s", save);
    int err = make_directory(dir);
    if (err < 0)
        return err;
    shelf->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (shelf->fd < 0)
        return gwi_fail_file("open the directory", dir);
    err = take_lock(shelf);
    if (err == 0)
        err = sync_parent(dir);
    if (err < 0)
        goto close_directory;
    if (gwi_manifest_read(dir, &old, NULL, NULL) == 0) {
        snprintf(shelf->old, sizeof shelf->old, "%s", old.save);
        gwi_manifest_fini(&old);
    }
    tidy(shelf, shelf->old[0] != 0); /* a list that cannot be read may be mended by its owner */
    snprintf(name, sizeof name, SAVING "%s", save);
    if (mkdirat(shelf->fd, name, 0777) < 0) {
        err = gwi_fail_file("make a directory in", dir);
        goto close_directory;
    }
    return 0;

close_directory:
    close(shelf->fd);
    shelf->fd = -1;
    return err;
}

/* committing */

static int write_list(const gwi_shelf *shelf, const char *name, const char *text, size_t n_bytes)
{
    int fd = openat(shelf->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    size_t done = 0;
    ssize_t n = 0;

    if (fd < 0)
        return gwi_fail_file("write", name);
    while (done < n_bytes && (n >= 0 || errno == EINTR)) {
        n = write(fd, text + done, n_bytes - done);
        done += n > 0 ? (size_t)n : 0;
    }
    int err = done < n_bytes || fsync(fd) < 0 ? gwi_fail_file("write", name) : 0;
    if (close(fd) < 0 && err == 0)
        err = gwi_fail_file("write", name);
    return err;
}

static int sync_saving(const gwi_shelf *shelf, const char *name)
{
    int fd = openat(shelf->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int err = fd < 0 ? gwi_fail_file("open", name) : sync_directory(fd, name);

    if (fd >= 0)
        close(fd);
    return err;
}

int gwi_shelf_commit(gwi_shelf *shelf, const char *manifest, size_t n_bytes)
{
    char saving[64], saved[64], list[64];

    snprintf(saving, sizeof saving, SAVING "%s", shelf->save);
    snprintf(saved, sizeof saved, SAVED "%s", shelf->save);
    snprintf(list, sizeof list, LIST "%s", shelf->save);
    int err = write_list(shelf, list, manifest, n_bytes);
    if (err == 0)
        err = sync_saving(shelf, saving);
    if (err == 0 && renameat(shelf->fd, saving, shelf->fd, saved) < 0)
        err = gwi_fail_file("rename a directory in", shelf->dir);
    if (err == 0)
        err = sync_directory(shelf->fd, shelf->dir);
    if (err == 0 && renameat(shelf->fd, list, shelf->fd, GWI_MANIFEST_FILE) < 0)
        err = gwi_fail_file("rename a file in", shelf->dir);
    return err < 0 ? err : sync_directory(shelf->fd, shelf->dir);
}

void gwi_shelf_end(gwi_shelf *shelf, int committed)
{
    char name[64];

    if (shelf->fd < 0)
        return;
    if (committed) {
        shelf->old[0] = 0;
        tidy(shelf, 1);
    } else {
        snprintf(name, sizeof name, LIST "%s", shelf->save);
        unlinkat(shelf->fd, name, 0);
        snprintf(name, sizeof name, SAVING "%s", shelf->save);
        remove_parts(shelf->fd, name);
        /* It may have been renamed before the failure; if the list names it, it stays. */
        gwi_manifest now = {0};
        int is_current = gwi_manifest_read(shelf->dir, &now, NULL, NULL) == 0 &&
                         strcmp(now.save, shelf->save) == 0;
        gwi_manifest_fini(&now);
        snprintf(name, sizeof name, SAVED "%s", shelf->save);
        if (!is_current)
            remove_parts(shelf->fd, name);
    }
    flock(shelf->fd, LOCK_UN); /* a forked child may have the descriptor too */
    close(shelf->fd);
    shelf->fd = -1;
}
