package sandbox

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// given is a start of s with a descriptor for whatever needs one.
func given(s Sandbox) Options {
	o := Options{BindFD: map[int]int{}, DataFD: map[int]int{}, SeccompFD: 5, StatusFD: 6, Credentials: map[string][]byte{}}
	for i, m := range s.Mounts {
		switch m.Kind {
		case ROBind, Bind:
			o.BindFD[i] = 10 + i
		case Data:
			o.DataFD[i] = 10 + i
		}
	}
	for _, e := range s.Env {
		if e.Credential != "" {
			o.Credentials[e.Credential] = []byte("secret of " + e.Credential)
		}
	}
	return o
}

func small() Sandbox {
	return Sandbox{
		Mounts: []Mount{
			{Kind: Tmpfs, Dest: "/", Size: 1024},
			{Kind: ROBind, Source: "/usr", Dest: "/usr"},
			{Kind: Symlink, Source: "usr/bin", Dest: "/bin"},
			{Kind: Tmpfs, Dest: "/etc", Size: 2048},
			{Kind: Data, Dest: "/etc/hosts", Text: "127.0.0.1 localhost\n"},
			{Kind: Proc, Dest: "/proc"},
			{Kind: Dev, Dest: "/dev"},
			{Kind: Tmpfs, Dest: "/tmp", Size: 4096, Perms: 0o1777},
			{Kind: Dir, Dest: "/run"},
			{Kind: Bind, Source: "/var/lib/state", Dest: "/home/mcp"},
			{Kind: Remount, Dest: "/etc"},
			{Kind: Remount, Dest: "/"},
		},
		Env:     []Env{{Name: "PATH", Value: "/usr/bin"}, {Name: "TOKEN", Credential: "TOKEN"}},
		Command: "/usr/bin/node", Args: []string{"/app/cli.mjs", "--", "--bind", "/"}, Dir: "/home/mcp", Hostname: "small",
		Limits: Limits{Memory: 1 << 20, Tasks: 10},
	}
}

func TestArguments(t *testing.T) {
	encoded, err := small().Arguments(given(small()))
	if err != nil {
		t.Fatal(err)
	}
	if len(encoded) != cap(encoded) {
		t.Errorf("%d bytes in %d: what grew has left a copy of the secrets behind", len(encoded), cap(encoded))
	}
	got := decoded(t, encoded)
	want := strings.Fields(`--unshare-user --uid 1000 --gid 1000 --unshare-ipc --unshare-pid --unshare-uts --unshare-cgroup
		--disable-userns --die-with-parent --new-session --cap-drop ALL --clearenv --seccomp 5 --json-status-fd 6 --hostname small
		--size 1024 --perms 0755 --tmpfs /
		--ro-bind-fd 11 /usr
		--symlink usr/bin /bin
		--size 2048 --perms 0755 --tmpfs /etc
		--perms 0444 --ro-bind-data 14 /etc/hosts
		--proc /proc
		--dev /dev
		--size 4096 --perms 1777 --tmpfs /tmp
		--perms 0755 --dir /run
		--bind-fd 19 /home/mcp
		--remount-ro /etc
		--remount-ro /
		--chdir /home/mcp
		--setenv PATH /usr/bin --setenv TOKEN SECRET`)
	want[slices.Index(want, "SECRET")] = "secret of TOKEN"
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// What the launcher has made is left out, and what is empty is bound from where it is.
	s, o := small(), given(small())
	s.Mounts = slices.Insert(s.Mounts, 6, Mount{Kind: Data, Dest: "/proc/locks"}, Mount{Kind: Tmpfs, Dest: "/proc/fs", Size: 512},
		Mount{Kind: Data, Dest: "/proc/key", Perms: 0o400}, Mount{Kind: Tmpfs, Dest: "/proc/open", Size: 512})
	s.Mounts = append(s.Mounts, Mount{Kind: Remount, Dest: "/proc/fs"})
	o.Tree, o.EmptyFile, o.EmptyFolder = "/sys/tree", "/sys/nothing", "/sys/empty"
	o.BindFD[13], o.DataFD[8] = 19, 18
	o.Made = map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true, 10: true, 11: true, 12: true, 14: true, 15: true}
	encoded, err = s.Arguments(o)
	if err != nil {
		t.Fatal(err)
	}
	start, end := slices.Index(want, "small"), slices.Index(want, "--chdir")
	want = slices.Concat(want[:start+1], strings.Fields(`--dev-bind /sys/tree / --proc /proc --ro-bind /sys/nothing /proc/locks
		--ro-bind /sys/empty /proc/fs --perms 0400 --ro-bind-data 18 /proc/key --size 512 --perms 0755 --tmpfs /proc/open
		--bind-fd 19 /home/mcp`), want[end:])
	if got := decoded(t, encoded); !slices.Equal(got, want) {
		t.Errorf("with a tree: got  %q\nwant %q", got, want)
	}
	// What the sandbox runs is data of argv, after "--": among the options it could become one.
	for _, a := range []string{small().Command, small().Args[0], "--", "--bind"} {
		if slices.Contains(got, a) {
			t.Errorf("%q of the server is among the options", a)
		}
	}
}

// decoded are the arguments, as bwrap cuts them.
func decoded(t *testing.T, encoded []byte) []string {
	t.Helper()
	text, ended := strings.CutSuffix(string(encoded), "\x00")
	if !ended {
		t.Fatalf("the last of %q is not ended", encoded)
	}
	return strings.Split(text, "\x00")
}

// arity is how many words follow an option of bwrap.
func arity(option string) int {
	switch option {
	case "--symlink", "--setenv", "--ro-bind-fd", "--bind-fd", "--ro-bind-data", "--dev-bind":
		return 2
	case "--uid", "--gid", "--cap-drop", "--seccomp", "--json-status-fd", "--hostname", "--perms", "--size", "--tmpfs", "--proc", "--dev",
		"--dir", "--remount-ro", "--chdir":
		return 1
	case "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup", "--disable-userns", "--die-with-parent",
		"--new-session", "--clearenv":
		return 0
	}
	return -1
}

// words reads arguments as bwrap does: an option, and as many words as it takes, whatever they look like.
func words(args []string) ([][]string, error) {
	var all [][]string
	for len(args) > 0 {
		n := arity(args[0])
		if n < 0 || n >= len(args) {
			return nil, fmt.Errorf("%q is no option, or lacks a word", args[0])
		}
		all = append(all, args[:n+1])
		args = args[n+1:]
	}
	return all, nil
}

// hostile strings that a declaration, or a secret, may hold.
func hostile(r *rand.Rand) string {
	fixed := []string{"--", "--bind", "--dev-bind", "-", "/", "--ro-bind", "--args", "0", "", " ", "$HOME", "%h", "`id`", ";", "a=b", "--setenv",
		"--chdir", "\n[Service]\n", "\"", "'", "\\", "é\u202e", "\xff\xfe", "--cap-add", "ALL"}
	if r.IntN(2) == 0 {
		return fixed[r.IntN(len(fixed))]
	}
	b := make([]byte, r.IntN(12))
	for i := range b {
		b[i] = byte(1 + r.IntN(255))
	}
	return string(b)
}

// Whatever the declaration's strings and the secrets are, bwrap reads the same options in the same order, and the
// strings come out where they were put in.
func TestStringsStayData(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		s := small()
		s.Args = nil
		for range r.IntN(4) {
			s.Args = append(s.Args, hostile(r))
		}
		wantEnv := map[string]string{"PATH": "/usr/bin"}
		o := given(s)
		wantEnv["TOKEN"] = "x" + hostile(r)
		o.Credentials["TOKEN"] = []byte(wantEnv["TOKEN"])
		for i := range r.IntN(4) {
			e := Env{Name: fmt.Sprintf("N%d", i), Value: hostile(r)}
			s.Env = append(s.Env, e)
			wantEnv[e.Name] = e.Value
		}
		source := "/" + strings.Trim(strings.ReplaceAll(strings.ReplaceAll(hostile(r), "/", "_"), ".", "_"), "/") + "x"
		s.Mounts = slices.Insert(s.Mounts, 9, Mount{Kind: ROBind, Source: source, Dest: "/srv" + source})
		o.BindFD = given(s).BindFD

		encoded, err := s.Arguments(o)
		if err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
		args := decoded(t, encoded)
		options, err := words(args)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		gotEnv, binds, dir := map[string]string{}, 0, ""
		for _, w := range options {
			switch w[0] {
			case "--setenv":
				gotEnv[w[1]] = w[2]
			case "--chdir":
				dir = w[1]
			case "--bind-fd", "--ro-bind-fd":
				binds++
				if w[1] == "19" && w[2] != "/srv"+source {
					t.Fatalf("bind at %q, want %q", w[2], "/srv"+source)
				}
			}
		}
		if len(gotEnv) != len(wantEnv) || binds != 3 {
			t.Fatalf("%d variables and %d binds in %q", len(gotEnv), binds, args)
		}
		for k, v := range wantEnv {
			if gotEnv[k] != v {
				t.Fatalf("%s is %q, want %q", k, gotEnv[k], v)
			}
		}
		if last := options[len(options)-1]; dir != "/home/mcp" || last[0] != "--setenv" {
			t.Fatalf("the directory is %q, the end %q", dir, last)
		}
	}
}

func TestArgumentsRefuses(t *testing.T) {
	const secret = "s3cret\x00--bind"
	for name, c := range map[string]struct {
		change func(*Sandbox, *Options)
		want   string
	}{
		"no descriptor of a bind":      {func(_ *Sandbox, o *Options) { delete(o.BindFD, 1) }, `no descriptor for the source of "/usr"`},
		"stdin as a bind":              {func(_ *Sandbox, o *Options) { o.BindFD[1] = 0 }, `no descriptor for the source of "/usr"`},
		"no descriptor of data":        {func(_ *Sandbox, o *Options) { o.DataFD = nil }, `no descriptor for the content of "/etc/hosts"`},
		"no filter":                    {func(_ *Sandbox, o *Options) { o.SeccompFD = 0 }, "descriptors 0 of the filter"},
		"no status":                    {func(_ *Sandbox, o *Options) { o.StatusFD = 0 }, "0 of the status"},
		"credential missing":           {func(_ *Sandbox, o *Options) { delete(o.Credentials, "TOKEN") }, `credential "TOKEN" is missing`},
		"credential empty":             {func(_ *Sandbox, o *Options) { o.Credentials["TOKEN"] = nil }, `credential "TOKEN" is missing`},
		"credential with NUL":          {func(_ *Sandbox, o *Options) { o.Credentials["TOKEN"] = []byte(secret) }, `credential "TOKEN" holds a NUL`},
		"credential too long":          {func(_ *Sandbox, o *Options) { o.Credentials["TOKEN"] = bytes.Repeat([]byte("s3cret"), 22000) }, `write deliver = "file"`},
		"variable with NUL":            {func(s *Sandbox, _ *Options) { s.Env[0].Value = "x\x00--bind" }, "holds a NUL"},
		"name with NUL":                {func(s *Sandbox, _ *Options) { s.Env[0].Name = "x\x00--bind" }, "holds a NUL"},
		"argument with NUL":            {func(s *Sandbox, _ *Options) { s.Args = []string{"a\x00b"} }, "holds a NUL"},
		"host name with NUL":           {func(s *Sandbox, _ *Options) { s.Hostname = "a\x00b" }, "holds a NUL"},
		"mount with NUL":               {func(s *Sandbox, _ *Options) { s.Mounts[8].Dest = "/run\x00--bind" }, "holds a NUL"},
		"link with NUL":                {func(s *Sandbox, _ *Options) { s.Mounts[2].Source = "usr\x00--bind" }, "holds a NUL"},
		"anything that Validate finds": {func(s *Sandbox, _ *Options) { s.Limits.Tasks = 0 }, "must be limited"},
	} {
		t.Run(name, func(t *testing.T) {
			s, o := small(), given(small())
			c.change(&s, &o)
			args, err := s.Arguments(o)
			if err == nil || !strings.Contains(err.Error(), c.want) || args != nil {
				t.Fatalf("%q, %v; want %q", args, err, c.want)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the secret is in the error: %v", err)
			}
		})
	}
}
