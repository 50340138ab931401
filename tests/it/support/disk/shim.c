/* A disk and a wall clock that tests hold in their hands, for a process that
 * loads this before its C library (LD_PRELOAD).
 *
 * Below the folder DISK_ROOT every open, write, truncation, sync and unlink is
 * counted, may be made to fail or to be the last thing the process does, and
 * is written to DISK_JOURNAL, in the order in which they happened: from that a
 * test builds what a disk would hold after a power loss. DISK_CONTROL is a
 * small file, shared as memory: the test says there what is to go wrong, and
 * by how much the wall clock is off. Nothing of this is in the product. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, OPEN = 4 };

/* As the test has it, field by field. */
struct control {
    int64_t clock_ns;   /* added to the wall clock */
    int64_t full;       /* 1: no write finds room; 2: none that makes a file longer */
    int64_t at;         /* which call is hit, counted from the start; 0 none */
    int64_t kinds;      /* which kinds are counted for that */
    int64_t action;     /* an errno; -1: killed before it; -2: killed half-way */
    int64_t sticky;     /* 1: all later ones of these kinds are hit as well */
    int64_t counted;    /* calls of these kinds so far */
    int64_t hits;       /* how many were hit */
    int64_t after;      /* writes that were made after the first hit */
    int64_t calls;      /* calls of any kind so far */
};

enum { J_NAME = 1, J_CREATE, J_WRITE, J_TRUNCATE, J_SYNC, J_UNLINK, J_START };

struct record {
    uint32_t kind, file;
    uint64_t at, bytes;
};

enum { FDS = 65536, FILES = 4096 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct control off;
static struct control *control = &off;
static const char *root;
static size_t root_bytes;
static int journal = -1;
static uint64_t records;
static uint16_t file_of[FDS]; /* 0: not below the root */
static char *name_of[FILES];  /* null: unlinked, or never there */
static uint16_t files;

static void note(uint32_t kind, uint32_t file, uint64_t at, const void *data, uint64_t bytes) {
    struct record record = {kind, file, at, bytes};
    struct iovec parts[2] = {{&record, sizeof record}, {(void *)data, data ? bytes : 0}};
    if (journal >= 0) {
        if (syscall(SYS_writev, journal, parts, 2) < 0) abort();
        records++;
    }
}

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("DISK_CONTROL");
    if (path) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
        void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (page != MAP_FAILED) control = page;
        syscall(SYS_close, fd);
    }
    path = getenv("DISK_JOURNAL");
    if (path)
        journal = (int)syscall(SYS_openat, AT_FDCWD, path,
                               O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    root = getenv("DISK_ROOT");
    root_bytes = root ? strlen(root) : 0;
    note(J_START, 0, 0, 0, 0);
}

static int is_ours(const char *path) {
    return root && strncmp(path, root, root_bytes) == 0 &&
           (path[root_bytes] == 0 || path[root_bytes] == '/');
}

static int find(const char *path) {
    for (int file = files; file > 0; file--)
        if (name_of[file] && strcmp(name_of[file], path) == 0) return file;
    return 0;
}

static int learn(const char *path) {
    int file = find(path);
    if (file || files + 1 >= FILES) return file;
    name_of[++files] = strdup(path);
    note(J_NAME, files, 0, path, strlen(path));
    return files;
}

static int file_at(int fd) { return fd >= 0 && fd < FDS ? file_of[fd] : 0; }

static void die(void) { syscall(SYS_kill, getpid(), SIGKILL); for (;;) pause(); }

/* Is this call hit? Then with what. */
static int64_t hit(int kind, int grows) {
    control->calls++;
    if (kind == WRITE && control->hits > 0) control->after++;
    if (kind == WRITE && (control->full == 1 || (control->full == 2 && grows))) return ENOSPC;
    if (!(control->kinds & kind)) return 0;
    control->counted++;
    if (control->at == 0 || control->counted < control->at) return 0;
    if (control->counted > control->at && !control->sticky) return 0;
    if (control->hits++ == 0) control->after = 0;
    if (control->action == -1) die();
    return control->action;
}

static int failed(int64_t error) {
    errno = (int)error;
    return -1;
}

static int open_any(int dir, const char *path, int flags, mode_t mode) {
    int ours = path && is_ours(path) && (flags & O_TMPFILE) != O_TMPFILE;
    if (!ours) return (int)syscall(SYS_openat, dir, path, flags, mode);
    pthread_mutex_lock(&mutex);
    int64_t error = hit(OPEN, 0);
    int fd = -1;
    if (error == -2) die();
    if (error) {
        fd = failed(error);
    } else {
        struct stat about;
        int is_new = (flags & O_CREAT) && stat(path, &about) != 0;
        fd = (int)syscall(SYS_openat, dir, path, flags, mode);
        if (fd >= 0 && fd < FDS) {
            int keep = errno;
            file_of[fd] = (uint16_t)learn(path);
            if (is_new) note(J_CREATE, file_of[fd], 0, 0, 0);
            if (flags & O_TRUNC) note(J_TRUNCATE, file_of[fd], 0, 0, 0);
            errno = keep;
        }
    }
    pthread_mutex_unlock(&mutex);
    return fd;
}

#define MODE                                         \
    mode_t mode = 0;                                 \
    if (flags & (O_CREAT | O_TMPFILE)) {             \
        va_list rest;                                \
        va_start(rest, flags);                       \
        mode = (mode_t)va_arg(rest, int);            \
        va_end(rest);                                \
    }

int open(const char *path, int flags, ...) { MODE return open_any(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return open_any(AT_FDCWD, path, flags, mode); }
int openat(int dir, const char *path, int flags, ...) { MODE return open_any(dir, path, flags, mode); }
int openat64(int dir, const char *path, int flags, ...) { MODE return open_any(dir, path, flags, mode); }

int close(int fd) {
    if (fd >= 0 && fd < FDS) file_of[fd] = 0;
    return (int)syscall(SYS_close, fd);
}

static ssize_t write_at(int fd, const void *data, size_t bytes, off_t at, int is_placed) {
    pthread_mutex_lock(&mutex);
    int file = file_at(fd);
    struct stat about = {0};
    fstat(fd, &about);
    if (!is_placed) at = (off_t)syscall(SYS_lseek, fd, 0, SEEK_CUR);
    int64_t error = hit(WRITE, at + (off_t)bytes > about.st_size);
    if (error == -2) bytes /= 2;
    ssize_t done;
    if (error > 0) {
        done = failed(error);
    } else {
        done = is_placed ? syscall(SYS_pwrite64, fd, data, bytes, at)
                         : syscall(SYS_write, fd, data, bytes);
        int keep = errno;
        if (done > 0) note(J_WRITE, (uint32_t)file, (uint64_t)at, data, (uint64_t)done);
        errno = keep;
        if (error == -2) die();
    }
    pthread_mutex_unlock(&mutex);
    return done;
}

ssize_t write(int fd, const void *data, size_t bytes) {
    return file_at(fd) ? write_at(fd, data, bytes, 0, 0) : syscall(SYS_write, fd, data, bytes);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) {
    return file_at(fd) ? write_at(fd, data, bytes, at, 1)
                       : syscall(SYS_pwrite64, fd, data, bytes, at);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    return pwrite64(fd, data, bytes, at);
}

int ftruncate64(int fd, off_t bytes) {
    int file = file_at(fd);
    if (!file) return (int)syscall(SYS_ftruncate, fd, bytes);
    pthread_mutex_lock(&mutex);
    int64_t error = hit(WRITE, 0);
    int done = -1;
    if (error == -2) die();
    if (error) {
        failed(error);
    } else {
        done = (int)syscall(SYS_ftruncate, fd, bytes);
        if (done == 0) note(J_TRUNCATE, (uint32_t)file, (uint64_t)bytes, 0, 0);
    }
    pthread_mutex_unlock(&mutex);
    return done;
}

int ftruncate(int fd, off_t bytes) { return ftruncate64(fd, bytes); }

/* What was written before a sync began is on the disk when it has ended. */
static int sync_any(int fd, long call) {
    int file = file_at(fd);
    if (!file) return (int)syscall(call, fd);
    pthread_mutex_lock(&mutex);
    /* SQLite passes over a folder that cannot be synced. */
    int64_t error = strcmp(name_of[file] ? name_of[file] : "", root) ? hit(SYNC, 0) : 0;
    uint64_t began = records;
    pthread_mutex_unlock(&mutex);
    if (error == -2) die();
    if (error) return failed(error);
    int done = (int)syscall(call, fd);
    pthread_mutex_lock(&mutex);
    if (done == 0) note(J_SYNC, (uint32_t)file, began, 0, 0);
    pthread_mutex_unlock(&mutex);
    return done;
}

int fsync(int fd) { return sync_any(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_any(fd, SYS_fdatasync); }

static int unlink_any(int dir, const char *path, int flags) {
    pthread_mutex_lock(&mutex);
    int done = (int)syscall(SYS_unlinkat, dir, path, flags);
    int file = done == 0 && is_ours(path) ? find(path) : 0;
    if (file) {
        note(J_UNLINK, (uint32_t)file, 0, 0, 0);
        name_of[file] = 0;
    }
    pthread_mutex_unlock(&mutex);
    return done;
}

int unlink(const char *path) { return unlink_any(AT_FDCWD, path, 0); }
int unlinkat(int dir, const char *path, int flags) { return unlink_any(dir, path, flags); }

int clock_gettime(clockid_t which, struct timespec *now) {
    int done = (int)syscall(SYS_clock_gettime, which, now);
    if (done == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) {
        int64_t step = control->clock_ns;
        now->tv_sec += step / 1000000000;
        now->tv_nsec += step % 1000000000;
        if (now->tv_nsec < 0) { now->tv_nsec += 1000000000; now->tv_sec--; }
        if (now->tv_nsec >= 1000000000) { now->tv_nsec -= 1000000000; now->tv_sec++; }
    }
    return done;
}

int gettimeofday(struct timeval *now, void *zone) {
    (void)zone;
    struct timespec precise;
    int done = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return done;
}
