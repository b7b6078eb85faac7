/* A disk that fails as it is told, below one directory, for every process that loads this library (LD_PRELOAD).
 *
 *   HEADRACE_FAULTY_ROOT      the directory, as the process names it (absolute)
 *   HEADRACE_FAULTY_CONTROL   a directory beside it, on the same file system:
 *     control     shared memory: which calls fail or wait, and how much room there is (struct control)
 *     journal     how to take back what is not on disk yet (struct entry), while `journalling` is set
 *     graves/     files and directories that were removed, until their directory is synced
 *
 * `tests/faults/shim/disk.py` writes the control, `power_failure.py` reads the journal of dead processes. Both know the
 * two structs below. Before each change to a file an entry says what was there; after each fsync or fdatasync that came
 * back, an entry says that what had been changed before it began is on disk: data by a sync of the file, names by a sync
 * of their directory, which is the least that POSIX promises.
 *
 * Not seen: mmap, copy_file_range, io_uring, hard links, and paths through symbolic links or "..".
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { WRITE = 1, READ = 2, SYNC = 4, OPEN = 8, TRUNCATE = 16, RENAME = 32, UNLINK = 64, MKDIR = 128, OPEN_TO_WRITE = 256 };

struct rule {
    int32_t active;
    uint32_t calls; /* of the kinds above */
    int32_t error;  /* errno; 0: the call goes on after the delay */
    int32_t delay_ms;
    int64_t after; /* so many calls are let through first */
    int64_t times; /* so many are hit then */
    int64_t hits;
    int32_t torn; /* a write that fails leaves its first half */
    int32_t unused;
    char path[80]; /* part of the path below the root; empty: of all */
};

struct control {
    uint64_t magic;
    int64_t space_left; /* bytes; negative: endless */
    int32_t journalling;
    int32_t unused[11];
    struct rule rules[7];
};

enum kind { WROTE = 1, CUT = 2, SYNCED = 3, CREATED = 4, UNLINKED = 5, RENAMED = 6, REMOVED_DIRECTORY = 7, GONE = 8 };

struct entry {
    uint32_t magic;
    uint32_t bytes; /* of the entry, payload included */
    uint32_t kind;
    uint32_t pid;
    uint64_t inode;  /* of the file, or of the directory that holds the name */
    uint64_t at;     /* WROTE: position. CUT: new size. SYNCED: the journal's size when it began. RENAMED: old directory */
    uint64_t size;   /* WROTE, CUT: of the file before */
    uint64_t child;  /* whose name it is */
    uint64_t victim; /* RENAMED: what had the new name before; 0: nothing */
    uint64_t unused;
    /* payload: the bytes that were there; or names, each with its terminating zero */
};

#define CONTROL_MAGIC 0x3168736964796166ull
#define ENTRY_MAGIC 0x4a444648u
#define FILES_MAX 65536

struct file {
    uint64_t inode;
    int is_directory, appends;
    char path[]; /* below the root */
};

struct grave {
    uint64_t directory, inode;
    int is_directory;
    struct grave *next;
};

static char root[PATH_MAX], graves[PATH_MAX - 32];
static size_t root_length;
static struct control *control;
static int journal_fd = -1;
static pid_t mine;
static struct file *files[FILES_MAX];
/* Shared by changes, with their entries; alone by a sync that looks how far the journal has come. */
static pthread_rwlock_t changes = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t burials = PTHREAD_MUTEX_INITIALIZER;
static struct grave *buried;

static void *next(void **slot, const char *name) {
    if (!*slot) *slot = dlsym(RTLD_NEXT, name);
    return *slot;
}
#define REAL(fn) ({ static void *slot; (__typeof__(fn) *)next(&slot, #fn); })

static void after_fork(void) { mine = getpid(); }

__attribute__((constructor)) static void begin(void) {
    const char *root_path = getenv("HEADRACE_FAULTY_ROOT"), *place = getenv("HEADRACE_FAULTY_CONTROL");
    char path[PATH_MAX];
    after_fork();
    if (!root_path || !place) return;
    pthread_atfork(NULL, NULL, after_fork);
    snprintf(graves, sizeof graves, "%s/graves", place);
    snprintf(path, sizeof path, "%s/control", place);
    int fd = REAL(open64)(path, O_RDWR | O_CLOEXEC);
    void *shared = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED || ((struct control *)shared)->magic != CONTROL_MAGIC) {
        fprintf(stderr, "faulty_disk: %s is no control file\n", path);
        abort();
    }
    REAL(close)(fd);
    snprintf(path, sizeof path, "%s/journal", place);
    fd = REAL(open64)(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    journal_fd = fcntl(fd, F_DUPFD_CLOEXEC, 900); /* out of the way of the descriptors that tests count */
    REAL(close)(fd);
    snprintf(root, sizeof root, "%s", root_path);
    root_length = strlen(root);
    control = shared;
}

/* The path below the root; NULL for every other one. */
static const char *below(const char *path) {
    if (!control || strncmp(path, root, root_length) != 0) return NULL;
    return path[root_length] == '/' ? path + root_length + 1 : path[root_length] ? NULL : "";
}

/* Of a call with a directory descriptor. */
static const char *resolve(int directory, const char *path, char *absolute) {
    char link[64];
    if (!control || path[0] == '/') return path;
    if (directory == AT_FDCWD) {
        if (!getcwd(absolute, PATH_MAX / 2)) return path;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
        ssize_t length = readlink(link, absolute, PATH_MAX / 2);
        if (length < 0) return path;
        absolute[length] = 0;
    }
    size_t length = strlen(absolute);
    snprintf(absolute + length, PATH_MAX - length, "/%s", path);
    return absolute;
}

static struct file *file_of(int fd) { return control && fd >= 0 && fd < FILES_MAX ? files[fd] : NULL; }

static void forget(int fd) {
    /* A child between vfork and exec shares this memory, but not the descriptors. */
    if (fd >= 0 && fd < FILES_MAX && files[fd] && getpid() == mine) files[fd] = NULL;
}

static void remember(int fd, const char *path, int flags) {
    struct stat seen;
    if (fd < 0 || fd >= FILES_MAX || fstat(fd, &seen) != 0) return;
    struct file *file = malloc(sizeof *file + strlen(path) + 1); /* never freed: another thread may look at it */
    file->inode = seen.st_ino, file->is_directory = S_ISDIR(seen.st_mode), file->appends = (flags & O_APPEND) != 0;
    strcpy(file->path, path);
    files[fd] = file;
}

/* The errno that this call is to fail with; 0 where it is not. May take its time. */
static int judged(unsigned call, const char *path, int *torn) {
    for (struct rule *rule = control->rules; rule < control->rules + 7; rule++) {
        if (!__atomic_load_n(&rule->active, __ATOMIC_ACQUIRE) || !(rule->calls & call)) continue;
        if (rule->path[0] && !strstr(path, rule->path)) continue;
        if (__atomic_fetch_sub(&rule->after, 1, __ATOMIC_SEQ_CST) > 0) continue;
        if (__atomic_fetch_sub(&rule->times, 1, __ATOMIC_SEQ_CST) <= 0) continue;
        __atomic_fetch_add(&rule->hits, 1, __ATOMIC_SEQ_CST);
        if (rule->delay_ms) {
            struct timespec delay = {rule->delay_ms / 1000, rule->delay_ms % 1000 * 1000000L};
            nanosleep(&delay, NULL);
        }
        if (rule->error) {
            if (torn) *torn = rule->torn;
            return rule->error;
        }
    }
    return 0;
}

static int refused(unsigned call, const char *path) {
    int error = judged(call, path, NULL);
    if (error) errno = error;
    return error;
}

/* How much of this may be written. */
static size_t take_room(size_t wanted) {
    int64_t left = __atomic_load_n(&control->space_left, __ATOMIC_SEQ_CST), taken;
    do {
        if (left < 0) return wanted;
        taken = (uint64_t)left < wanted ? left : (int64_t)wanted;
    } while (!__atomic_compare_exchange_n(&control->space_left, &left, left - taken, 0, __ATOMIC_SEQ_CST,
                                          __ATOMIC_SEQ_CST));
    return taken;
}

static void give_room(int64_t freed) {
    if (freed > 0 && __atomic_load_n(&control->space_left, __ATOMIC_SEQ_CST) >= 0)
        __atomic_fetch_add(&control->space_left, freed, __ATOMIC_SEQ_CST);
}

static void note(struct entry entry, const void *payload, size_t payload_bytes, const char *name) {
    struct iovec parts[3] = {{&entry, sizeof entry},
                             {(void *)payload, payload_bytes},
                             {(void *)name, name ? strlen(name) + 1 : 0}};
    entry.magic = ENTRY_MAGIC, entry.pid = mine;
    entry.bytes = parts[0].iov_len + parts[1].iov_len + parts[2].iov_len;
    if (REAL(writev)(journal_fd, parts, 3) != (ssize_t)entry.bytes) {
        fprintf(stderr, "faulty_disk: the journal cannot be written: %s\n", strerror(errno));
        abort();
    }
}

/* `length` bytes of an open file, which may be open for writing only; free() them. */
static void *content(int fd, off_t at, size_t length) {
    char link[64], *bytes = malloc(length + 1);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int readable = REAL(open64)(link, O_RDONLY | O_CLOEXEC);
    size_t found = 0;
    while (found < length) {
        ssize_t more = REAL(pread64)(readable, bytes + found, length - found, at + found);
        if (more <= 0) break;
        found += more;
    }
    memset(bytes + found, 0, length - found);
    REAL(close)(readable);
    return bytes;
}

static void note_cut(int fd, uint64_t inode, off_t new_size) {
    struct stat seen;
    if (!control->journalling || fstat(fd, &seen) != 0) return;
    size_t lost = seen.st_size > new_size ? seen.st_size - new_size : 0;
    void *bytes = content(fd, new_size, lost);
    note((struct entry){.kind = CUT, .inode = inode, .at = new_size, .size = seen.st_size}, bytes, lost, NULL);
    free(bytes);
}

static void note_write(struct file *file, int fd, off_t at, size_t length) {
    struct stat seen;
    if (!control->journalling || fstat(fd, &seen) != 0) return;
    if (at < 0) at = file->appends ? seen.st_size : lseek64(fd, 0, SEEK_CUR);
    size_t over = at < seen.st_size ? (size_t)(seen.st_size - at) < length ? (size_t)(seen.st_size - at) : length : 0;
    void *bytes = content(fd, at, over);
    note((struct entry){.kind = WROTE, .inode = file->inode, .at = at, .size = seen.st_size}, bytes, over, NULL);
    free(bytes);
}

static uint64_t inode_of(const char *path, struct stat *seen) { return lstat(path, seen) == 0 ? seen->st_ino : 0; }

/* The inode of the directory that holds a path, whose last part is `name` then. */
static uint64_t parent_of(const char *path, const char **name) {
    char directory[PATH_MAX];
    struct stat seen;
    const char *slash = strrchr(path, '/');
    *name = slash + 1;
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - path), path);
    return inode_of(directory, &seen);
}

static void note_name(enum kind kind, const char *path, uint64_t child) {
    const char *name;
    uint64_t directory = parent_of(path, &name);
    if (control->journalling) note((struct entry){.kind = kind, .inode = directory, .child = child}, NULL, 0, name);
}

static void grave_path(char *path, uint64_t inode) { snprintf(path, PATH_MAX, "%s/%lu", graves, (unsigned long)inode); }

/* What is about to lose its name stays, until the directory that forgets it is synced. */
static void bury(const char *path, const struct stat *seen, uint64_t directory) {
    char grave[PATH_MAX];
    if (!control->journalling) return;
    grave_path(grave, seen->st_ino);
    if (!S_ISDIR(seen->st_mode)) (void)!link(path, grave);
    struct grave *made = malloc(sizeof *made);
    pthread_mutex_lock(&burials);
    *made = (struct grave){directory, seen->st_ino, S_ISDIR(seen->st_mode), buried};
    buried = made;
    pthread_mutex_unlock(&burials);
}

static void clear_graves(uint64_t directory) {
    char path[PATH_MAX];
    pthread_mutex_lock(&burials);
    for (struct grave **at = &buried; *at;) {
        struct grave *grave = *at;
        if (grave->directory != directory) {
            at = &grave->next;
            continue;
        }
        note((struct entry){.kind = GONE, .inode = grave->inode}, NULL, 0, NULL);
        grave_path(path, grave->inode);
        if (grave->is_directory) REAL(rmdir)(path);
        else REAL(unlink)(path);
        *at = grave->next;
        free(grave);
    }
    pthread_mutex_unlock(&burials);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static int opened(int directory, const char *path, int flags, mode_t mode) {
    char absolute[PATH_MAX];
    struct stat before;
    const char *full = resolve(directory, path, absolute), *inside = below(full);
    if (!inside) return REAL(openat64)(directory, path, flags, mode);
    int to_write = (flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC);
    if (refused(OPEN | (to_write ? OPEN_TO_WRITE : 0), inside)) return -1;
    pthread_rwlock_rdlock(&changes);
    int existed = inode_of(full, &before) != 0;
    if (existed && flags & O_TRUNC && before.st_size) {
        int old = REAL(open64)(full, O_RDONLY | O_CLOEXEC);
        if (old >= 0) note_cut(old, before.st_ino, 0), REAL(close)(old);
        give_room(before.st_size);
    }
    int fd = REAL(openat64)(directory, path, flags, mode);
    if (fd >= 0) remember(fd, inside, flags);
    struct file *file = file_of(fd);
    if (file && !existed) note_name(CREATED, full, file->inode);
    pthread_rwlock_unlock(&changes);
    return fd;
}

#define MODE(flags, last) ({ mode_t mode = 0; \
    if ((flags) & (O_CREAT | O_TMPFILE)) { va_list rest; va_start(rest, last); mode = va_arg(rest, mode_t); va_end(rest); } \
    mode; })

int open64(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags, flags)); }
int open(const char *path, int flags, ...) { return opened(AT_FDCWD, path, flags, MODE(flags, flags)); }
int openat64(int directory, const char *path, int flags, ...) { return opened(directory, path, flags, MODE(flags, flags)); }
int openat(int directory, const char *path, int flags, ...) { return opened(directory, path, flags, MODE(flags, flags)); }
int __open64_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }
int __open_2(const char *path, int flags) { return opened(AT_FDCWD, path, flags, 0); }

int close(int fd) {
    forget(fd);
    return REAL(close)(fd);
}

int dup2(int fd, int as) {
    forget(as);
    return REAL(dup2)(fd, as);
}

int dup3(int fd, int as, int flags) {
    forget(as);
    return REAL(dup3)(fd, as, flags);
}

/* ---- content ----------------------------------------------------------------------------------------------------- */

static ssize_t written(struct file *file, int fd, const struct iovec *parts, int count, off_t at) {
    struct iovec some[IOV_MAX];
    size_t wanted = 0, allowed;
    int torn = 0, error = judged(WRITE, file->path, &torn);
    for (int i = 0; i < count; i++) wanted += parts[i].iov_len;
    if (error && !torn) return errno = error, -1;
    allowed = take_room(error ? wanted / 2 : wanted);
    if (!allowed && wanted) return errno = error ? error : ENOSPC, -1;
    int used = 0;
    for (size_t left = allowed; left && used < count; used++) {
        some[used] = parts[used];
        if (some[used].iov_len > left) some[used].iov_len = left;
        left -= some[used].iov_len;
    }
    pthread_rwlock_rdlock(&changes);
    note_write(file, fd, at, allowed);
    ssize_t done = at < 0 ? REAL(writev)(fd, some, used) : REAL(pwritev64)(fd, some, used, at);
    int why = errno;
    pthread_rwlock_unlock(&changes);
    give_room(allowed - (done < 0 ? 0 : done));
    return errno = error ? error : why, error ? -1 : done;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    struct file *file = file_of(fd);
    if (!file) return REAL(write)(fd, bytes, length);
    return written(file, fd, &(struct iovec){(void *)bytes, length}, 1, -1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    struct file *file = file_of(fd);
    return file ? written(file, fd, parts, count, -1) : REAL(writev)(fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    struct file *file = file_of(fd);
    if (!file) return REAL(pwrite64)(fd, bytes, length, at);
    return written(file, fd, &(struct iovec){(void *)bytes, length}, 1, at);
}
ssize_t pwrite(int fd, const void *bytes, size_t length, off_t at) { return pwrite64(fd, bytes, length, at); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    struct file *file = file_of(fd);
    return file ? written(file, fd, parts, count, at) : REAL(pwritev64v2)(fd, parts, count, at, flags);
}

#define READING(fd, real) ({ struct file *file = file_of(fd); file && refused(READ, file->path) ? -1 : (real); })

ssize_t read(int fd, void *bytes, size_t length) { return READING(fd, REAL(read)(fd, bytes, length)); }
ssize_t readv(int fd, const struct iovec *parts, int count) { return READING(fd, REAL(readv)(fd, parts, count)); }
ssize_t pread64(int fd, void *bytes, size_t length, off64_t at) { return READING(fd, REAL(pread64)(fd, bytes, length, at)); }
ssize_t pread(int fd, void *bytes, size_t length, off_t at) { return READING(fd, REAL(pread64)(fd, bytes, length, at)); }
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t at, int flags) {
    return READING(fd, REAL(preadv64v2)(fd, parts, count, at, flags));
}

static int cut(int fd, off_t size) {
    struct file *file = file_of(fd);
    struct stat before;
    if (!file) return REAL(ftruncate64)(fd, size);
    if (refused(TRUNCATE, file->path)) return -1;
    pthread_rwlock_rdlock(&changes);
    fstat(fd, &before);
    note_cut(fd, file->inode, size);
    int result = REAL(ftruncate64)(fd, size);
    if (result == 0) give_room(before.st_size - size);
    pthread_rwlock_unlock(&changes);
    return result;
}
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }
int ftruncate(int fd, off_t size) { return cut(fd, size); }

static int allocated(int fd, off_t at, off_t length) {
    struct file *file = file_of(fd);
    struct stat before;
    if (!file) return REAL(posix_fallocate64)(fd, at, length);
    int error = judged(WRITE, file->path, NULL);
    if (error) return error;
    size_t taken = take_room(length);
    if (taken < (size_t)length) return give_room(taken), ENOSPC;
    pthread_rwlock_rdlock(&changes);
    fstat(fd, &before);
    if (control->journalling)
        note((struct entry){.kind = WROTE, .inode = file->inode, .at = before.st_size, .size = before.st_size}, NULL, 0, NULL);
    error = REAL(posix_fallocate64)(fd, at, length);
    pthread_rwlock_unlock(&changes);
    return error;
}
int posix_fallocate64(int fd, off64_t at, off64_t length) { return allocated(fd, at, length); }
int posix_fallocate(int fd, off_t at, off_t length) { return allocated(fd, at, length); }

static int synced(int fd, int (*sync)(int)) {
    struct file *file = file_of(fd);
    struct stat journal;
    if (!file) return sync(fd);
    if (refused(SYNC, file->path)) return -1;
    pthread_rwlock_wrlock(&changes);
    fstat(journal_fd, &journal);
    pthread_rwlock_unlock(&changes);
    int result = sync(fd);
    if (result == 0 && control->journalling) {
        note((struct entry){.kind = SYNCED, .inode = file->inode, .at = journal.st_size}, NULL, 0, NULL);
        if (file->is_directory) clear_graves(file->inode);
    }
    return result;
}
int fsync(int fd) { return synced(fd, REAL(fsync)); }
int fdatasync(int fd) { return synced(fd, REAL(fdatasync)); }

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int renamed(int old_directory, const char *old, int new_directory, const char *new) {
    char old_absolute[PATH_MAX], new_absolute[PATH_MAX];
    struct stat child, victim = {0};
    const char *old_name, *new_name;
    const char *from = resolve(old_directory, old, old_absolute), *to = resolve(new_directory, new, new_absolute);
    if (!below(from) || !below(to)) return REAL(renameat)(old_directory, old, new_directory, new);
    if (refused(RENAME, below(to))) return -1;
    pthread_rwlock_rdlock(&changes);
    uint64_t inode = inode_of(from, &child), over = inode_of(to, &victim);
    uint64_t source = parent_of(from, &old_name), target = parent_of(to, &new_name);
    if (inode && control->journalling) {
        if (over) bury(to, &victim, target);
        note((struct entry){.kind = RENAMED, .inode = target, .at = source, .child = inode, .victim = over}, old_name,
             strlen(old_name) + 1, new_name);
    }
    int result = REAL(renameat)(AT_FDCWD, from, AT_FDCWD, to);
    if (result == 0 && over) give_room(victim.st_size);
    pthread_rwlock_unlock(&changes);
    return result;
}
int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new); }
int renameat(int old_directory, const char *old, int new_directory, const char *new) {
    return renamed(old_directory, old, new_directory, new);
}

static int is_empty(const char *path) {
    DIR *listing = opendir(path);
    int found = 0;
    while (listing && readdir(listing)) found++;
    if (listing) closedir(listing);
    return found <= 2;
}

static int removed(int directory, const char *path, int flags) {
    char absolute[PATH_MAX], grave[PATH_MAX];
    struct stat seen;
    const char *name, *full = resolve(directory, path, absolute), *inside = below(full);
    if (!inside) return REAL(unlinkat)(directory, path, flags);
    if (refused(UNLINK, inside)) return -1;
    pthread_rwlock_rdlock(&changes);
    int result, is_directory = (flags & AT_REMOVEDIR) != 0;
    if (!inode_of(full, &seen) || !control->journalling || is_directory != !!S_ISDIR(seen.st_mode) ||
        (is_directory && !is_empty(full))) {
        result = REAL(unlinkat)(directory, path, flags);
    } else {
        bury(full, &seen, parent_of(full, &name));
        note_name(is_directory ? REMOVED_DIRECTORY : UNLINKED, full, seen.st_ino);
        grave_path(grave, seen.st_ino);
        result = is_directory ? REAL(renameat)(AT_FDCWD, full, AT_FDCWD, grave) : REAL(unlinkat)(AT_FDCWD, full, 0);
    }
    if (result == 0 && !is_directory) give_room(seen.st_size);
    pthread_rwlock_unlock(&changes);
    return result;
}
int unlink(const char *path) { return removed(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return removed(AT_FDCWD, path, AT_REMOVEDIR); }
int unlinkat(int directory, const char *path, int flags) { return removed(directory, path, flags); }

static int made(int directory, const char *path, mode_t mode) {
    char absolute[PATH_MAX];
    struct stat seen;
    const char *full = resolve(directory, path, absolute), *inside = below(full);
    if (!inside) return REAL(mkdirat)(directory, path, mode);
    if (refused(MKDIR, inside)) return -1;
    pthread_rwlock_rdlock(&changes);
    int result = REAL(mkdirat)(directory, path, mode);
    if (result == 0) note_name(CREATED, full, inode_of(full, &seen));
    pthread_rwlock_unlock(&changes);
    return result;
}
int mkdir(const char *path, mode_t mode) { return made(AT_FDCWD, path, mode); }
int mkdirat(int directory, const char *path, mode_t mode) { return made(directory, path, mode); }

/* ---- how full it is ---------------------------------------------------------------------------------------------- */

static int volume(const char *path, struct statvfs64 *seen) {
    int result = REAL(statvfs64)(path, seen);
    const char *inside = below(path);
    int64_t left = inside ? __atomic_load_n(&control->space_left, __ATOMIC_SEQ_CST) : -1;
    if (result == 0 && left >= 0 && (uint64_t)left / seen->f_frsize < seen->f_bavail)
        seen->f_bavail = seen->f_bfree = left / seen->f_frsize;
    return result;
}
int statvfs64(const char *path, struct statvfs64 *seen) { return volume(path, seen); }
int statvfs(const char *path, struct statvfs *seen) { return volume(path, (struct statvfs64 *)seen); }
