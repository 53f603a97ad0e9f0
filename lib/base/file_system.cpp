// What the file system below a path is and has, and its errors in words.
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cerrno>
#include <system_error>

#include "lib/base/error.h"
#include "lib/base/file.h"
#include "lib/base/units.h"

namespace narrowgauge {
namespace {

// What the user can do about an error of the system; null for errors that only a bug can cause.
const char* remedy(int error_number) {
  switch (error_number) {
    case ENOSPC:
      return "free some space, or choose a folder on another disk";
    case EDQUOT:
      return "the disk quota is used up: free some space, or ask for more";
    case EFBIG:
      return "the file size limit is reached: raise it with ulimit -f, or use another file system";
    case EIO:
      return "the device reports a failure: look at dmesg, and use another disk";
    case EROFS:
      return "choose a folder on a writable file system";
    case ENOENT:
      return "check the path";
    case ENOTDIR:
      return "a part of the path is a file: check the path";
    case EISDIR:
      return "name a file";
    case EACCES:
    case EPERM:
      return "check the owner and the permissions";
    case EEXIST:
      return "choose another name";
    case ENOTEMPTY:
      return "another program writes into it: stop that one first";
    case EBUSY:
    case ETXTBSY:
      return "another program uses it: stop that one first";
    case ENAMETOOLONG:
      return "choose a shorter name";
    case ELOOP:
      return "the links lead in a circle: check the path";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise the limit with ulimit -n";
    case EPIPE:
      return "the reader of the pipe has gone";
    case ESTALE:
    case ETIMEDOUT:
    case EHOSTDOWN:
      return "the file server does not answer: mount it anew";
    default:
      return nullptr;
  }
}

// The path itself, or its nearest parent that exists.
std::filesystem::path existing_part(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::path part = std::filesystem::absolute(path, error);
  while (!std::filesystem::exists(part, error) && part.has_relative_path()) part = part.parent_path();
  return part;
}

}  // namespace

void throw_io_error(std::string_view action, const std::filesystem::path& path, int error_number) {
  const std::string reason = std::generic_category().message(error_number);
  const char* advice = remedy(error_number);
  if (advice == nullptr) {
    throw std::system_error(error_number, std::generic_category(),
                            fmt::format("cannot {} {}", action, path.string()));
  }
  throw UserError(fmt::format("cannot {} {}: {} ({})", action, path.string(), reason, advice));
}

uint64_t free_bytes(const std::filesystem::path& path) {
  const std::filesystem::path part = existing_part(path);
  struct statvfs info {};
  if (::statvfs(part.c_str(), &info) != 0) throw_io_error("ask for the free space of", part, errno);
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

void require_free_space(const std::filesystem::path& path, int64_t bytes, const std::string& remedy) {
  const uint64_t free = free_bytes(path);
  if (free >= static_cast<uint64_t>(bytes)) return;
  throw UserError(fmt::format("{} needs {}, but only {} are free there: {}", path.string(),
                              format_bytes(bytes), format_bytes(static_cast<int64_t>(free)), remedy));
}

bool is_network_file_system(const std::filesystem::path& path) {
  struct statfs info {};
  if (::statfs(existing_part(path).c_str(), &info) != 0) return false;
  switch (static_cast<uint32_t>(info.f_type)) {
    case 0x01021997:  // 9p, WSL2's Windows drives
    case 0x00006969:  // NFS
    case 0x0000517b:  // SMB
    case 0xff534d42:  // CIFS
    case 0xfe534d42:  // SMB2
    case 0x65735546:  // FUSE
      return true;
    default:
      return false;
  }
}

}  // namespace narrowgauge
