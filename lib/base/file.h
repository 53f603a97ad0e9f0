#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace narrowgauge {

// Owns one descriptor; closes it when it goes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept;
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void close();  // now; errors are ignored (fsync first where they matter)

 private:
  int fd_ = -1;
};

// Throws for a failed system call on `path`. What the user can mend (missing file, permission, full disk,
// quota, file size limit, read-only or failing device, ...) becomes a UserError "cannot ACTION PATH: reason
// (remedy)"; the rest std::system_error.
[[noreturn]] void throw_io_error(std::string_view action, const std::filesystem::path& path,
                                 int error_number);

// All three throw through throw_io_error. Written files get mode 0666 less the umask. Descriptors close on
// exec.
FileDescriptor open_to_read(const std::filesystem::path& path);    // UserError for a folder, too
FileDescriptor open_to_write(const std::filesystem::path& path);   // created or emptied
FileDescriptor open_to_append(const std::filesystem::path& path);  // created when missing

// Writes every byte, however often the system takes only a part. `path` is for messages. Needs SIGXFSZ
// ignored (ignore_file_signals) to see a file size limit as an error.
void write_all(int fd, const void* data, size_t bytes, const std::filesystem::path& path);

// Writes to standard output and flushes it; errors as in write_all. (fmt::print throws what would pass for a
// bug.)
void write_stdout(std::string_view text);

// SIGXFSZ and SIGPIPE off, so that they come back as errors of write. main calls it first.
void ignore_file_signals();

// The whole file. UserError when it is missing or unreadable.
std::string read_file(const std::filesystem::path& path);

// Replaces `path` whole or not at all: temporary file beside it, fsync, rename, fsync of the folder. On an
// error the temporary file is removed and the old file is untouched.
void atomic_write_file(const std::filesystem::path& path, std::string_view bytes);

// Flushes a file's bytes or a folder's entries to the device. File systems that cannot flush a folder are
// accepted.
void fsync_path(const std::filesystem::path& path);

// Creates the folder and its parents; UserError when that fails or a file is in the way.
void make_folder(const std::filesystem::path& path);

// Removes a file or folder with all it holds; fine when it is missing. Links are removed, never followed.
void remove_tree(const std::filesystem::path& path);

// Bytes that this user may still write on the file system of `path`, or of its nearest parent that exists.
uint64_t free_bytes(const std::filesystem::path& path);

// UserError with both figures and `remedy` when fewer than `bytes` bytes are free there.
void require_free_space(const std::filesystem::path& path, int64_t bytes, const std::string& remedy);

// True on 9p (WSL2's Windows drives), NFS, SMB/CIFS and FUSE, where mmap is slow or unsafe. False when
// unknown.
bool is_network_file_system(const std::filesystem::path& path);

}  // namespace narrowgauge
