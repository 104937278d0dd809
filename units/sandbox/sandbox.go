// Package sandbox turns what a declaration asks for into the exact options of bubblewrap: mounts, environment and
// seccomp filter as data.
package sandbox

// Sandbox is everything that bwrap is told about one server. It is data in the plan, holds no secret,
// and is complete: what it does not name, the server does not have.
type Sandbox struct {
	Mounts  []Mount  `json:"mounts"`
	Env     []Env    `json:"env"`
	Command string   `json:"command"` // absolute path inside the sandbox
	Args    []string `json:"args,omitempty"`
	Dir     string   `json:"dir"` // working directory inside the sandbox
	Limits  Limits   `json:"limits"`

	Remote   string `json:"remote,omitempty"`   // URL that the command, pfar's adapter, connects to; "": it is another
	Attached string `json:"attached,omitempty"` // likewise, the path of a server that runs on the host without pfar
	Hostname string `json:"hostname,omitempty"` // "": the host's
	Once     bool   `json:"once,omitempty"`     // it runs to its end, once, and nobody speaks to it
}

// Kind says how a mount comes about; the words are bwrap's option names.
type Kind string

const (
	ROBind Kind = "ro-bind"
	// ROOverlay is read-only over an overlayfs of the sandbox's own, where the kernel has one: no inode is shared with
	// the host, and so no lock, watch, socket or FIFO.
	ROOverlay Kind = "ro-overlay"
	Bind      Kind = "bind"
	Tmpfs     Kind = "tmpfs"
	Proc      Kind = "proc"
	Dev       Kind = "dev"
	Dir       Kind = "dir"
	Symlink   Kind = "symlink" // Source is the link's text
	Data      Kind = "data"    // Text, a credential or certificates as a read-only file (--ro-bind-data)
	Remount   Kind = "remount-ro"
)

// Mount is one step in the making of the sandbox's file system. Order is meaning.
type Mount struct {
	Kind   Kind   `json:"kind"`
	Source string `json:"source,omitempty"` // path on the host, every symlink resolved; opened without following links
	Dest   string `json:"dest"`
	Size   int64  `json:"size,omitempty"` // bytes, of a tmpfs
	Perms  uint32 `json:"perms,omitempty"`
	Text   string `json:"text,omitempty"`
	State  bool   `json:"state,omitempty"` // Source is the server's own state directory, made before the start
	Live   bool   `json:"live,omitempty"`  // of ROOverlay: a running server sees which files the host replaces or makes in it

	// Of Data, instead of Text, what only the moment of the start knows.
	Credential string `json:"credential,omitempty"` // the value of this one, as it is
	Authority  bool   `json:"authority,omitempty"`  // the certificates of Source, if there is one, and then that of the bridge's authority

	Door *Door `json:"door,omitempty"` // of ROBind: Source is a way out that the declaration names

	Why string `json:"why,omitempty"` // for pfar plan and pfar explain
}

// Door is a socket or FIFO of the host behind which a server runs that pfar does not start.
type Door struct {
	FIFO   bool     `json:"fifo,omitempty"` // it is a FIFO, and else a socket
	Owners []uint32 `json:"owners"`         // who may own it, and listen at it; any other user is somebody else
}

// Scratch reports whether m is a tmpfs that the server writes to. bwrap bounds its bytes but not its files, whose
// inodes are memory of the kernel: the launcher mounts it.
func (m Mount) Scratch() bool { return m.Kind == Tmpfs && m.Perms != 0 && m.Size > 0 && m.Dest != "/" }

// Blank reports whether m is a empty synthetic file: one file can be all of those.
func (m Mount) Blank() bool { return m.Kind == Data && m.contents() == 0 && m.Perms == 0 }

// ReadOnly reports whether m shows a file or folder of the host that the server cannot change.
func (m Mount) ReadOnly() bool { return m.Kind == ROBind || m.Kind == ROOverlay }

// Env is one environment variable of the server. Exactly one of Value and Credential is used.
type Env struct {
	Name       string `json:"name"`
	Value      string `json:"value,omitempty"`
	Credential string `json:"credential,omitempty"` // file name in $CREDENTIALS_DIRECTORY that holds the value
}

// Limits are the cgroup's and the kernel's bounds. Zero means none was set, which Compile never produces.
type Limits struct {
	Memory int64 `json:"memory"` // bytes, MemoryMax=
	Tasks  int   `json:"tasks"`  // processes and threads, TasksMax=
	CPU    int   `json:"cpu"`    // percent of one core, CPUQuota=; 0: no quota

	File int64 `json:"file,omitempty"` // bytes, the largest file that it may make (RLIMIT_FSIZE); 0: no bound
}
