package sandbox

// newest is the last system call that the table below was made in the knowledge of: removexattrat, Linux 6.13. From 424
// on the machines number alike.
const newest = 466

// none marks a system call that a machine does not have.
const none = -1

// systemCall is one row of the table, with the machines' own numbers (asm/unistd_64.h, asm-generic/unistd.h).
type systemCall struct {
	name         string
	amd64, arm64 int
	errno        uint32
}

// refused are the system calls that no server gets, whatever their arguments.
func refused() []systemCall {
	const no = errnoEPERM
	return []systemCall{
		// Its flags lie in memory, where a filter cannot see them; C libraries fall back to clone on ENOSYS.
		{"clone3", 435, 435, errnoENOSYS},
		// Likewise: a mode with a set-user-ID bit (setID); programs fall back to openat.
		{"openat2", 437, 437, errnoENOSYS},

		// Namespaces and the file system's shape.
		{"unshare", 272, 97, no},
		{"setns", 308, 268, no},
		{"mount", 165, 40, no},
		{"umount2", 166, 39, no},
		{"pivot_root", 155, 41, no},
		{"chroot", 161, 51, no},
		{"open_tree", 428, 428, no},
		{"move_mount", 429, 429, no},
		{"fsopen", 430, 430, no},
		{"fsconfig", 431, 431, no},
		{"fsmount", 432, 432, no},
		{"fspick", 433, 433, no},
		{"mount_setattr", 442, 442, no},

		// Files by handle, past every path.
		{"name_to_handle_at", 303, 264, no},
		{"open_by_handle_at", 304, 265, no},

		// Other processes' memory and descriptors.
		{"ptrace", 101, 117, no},
		{"process_vm_readv", 310, 270, no},
		{"process_vm_writev", 311, 271, no},
		{"process_madvise", 440, 440, no},
		{"kcmp", 312, 272, no},
		{"pidfd_getfd", 438, 438, no},
		{"migrate_pages", 256, 238, no},
		{"move_pages", 279, 239, no},

		// Parts of the kernel where most of its holes were found, and that servers have no use for.
		{"bpf", 321, 280, no},
		{"perf_event_open", 298, 241, no},
		{"io_uring_setup", 425, 425, no},
		{"io_uring_enter", 426, 426, no},
		{"io_uring_register", 427, 427, no},
		{"userfaultfd", 323, 282, no},
		{"vmsplice", 278, 75, no},
		{"io_setup", 206, 0, errnoENOSYS}, // fs.aio-max-nr is one number for the whole machine
		{"memfd_secret", 447, 447, no},    // memory that the kernel cannot swap or look into

		// Which pages of a shared file are in memory is a channel between all who read it.
		{"mincore", 27, 232, errnoENOSYS},
		{"cachestat", 451, 451, errnoENOSYS},

		// Keyrings are not in a namespace.
		{"add_key", 248, 217, no},
		{"request_key", 249, 218, no},
		{"keyctl", 250, 219, no},

		// Administration of the machine: refused by the kernel too, for want of capabilities.
		{"kexec_load", 246, 104, no},
		{"kexec_file_load", 320, 294, no},
		{"init_module", 175, 105, no},
		{"finit_module", 313, 273, no},
		{"delete_module", 176, 106, no},
		{"create_module", 174, none, no},
		{"get_kernel_syms", 177, none, no},
		{"query_module", 178, none, no},
		{"swapon", 167, 224, no},
		{"swapoff", 168, 225, no},
		{"reboot", 169, 142, no},
		{"settimeofday", 164, 170, no},
		{"clock_settime", 227, 112, no},
		{"clock_adjtime", 305, 266, no},
		{"adjtimex", 159, 171, no},
		{"acct", 163, 89, no},
		{"quotactl", 179, 60, no},
		{"quotactl_fd", 443, 443, no},
		{"syslog", 103, 116, no},
		{"vhangup", 153, 58, no},
		{"fanotify_init", 300, 262, no},
		{"iopl", 172, none, no},
		{"ioperm", 173, none, no},

		// Obsolete, or for other operating systems' programs.
		{"modify_ldt", 154, none, no},
		{"lookup_dcookie", 212, 18, no},
		{"nfsservctl", 180, 42, no},
		{"uselib", 134, none, no},
		{"_sysctl", 156, none, no},
		{"sysfs", 139, none, no},
		{"ustat", 136, none, no},
	}
}
