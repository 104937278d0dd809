package sandbox

import (
	"slices"
	"strings"
	"testing"
)

func TestValidate(t *testing.T) {
	if err := small().Validate(); err != nil {
		t.Fatal(err)
	}
	insert := func(i int, m ...Mount) func(*Sandbox) {
		return func(s *Sandbox) { s.Mounts = slices.Insert(s.Mounts, i, m...) }
	}
	const beforeRemounts = 10
	for name, c := range map[string]struct {
		change func(*Sandbox)
		want   string
	}{
		"zero":                        {func(s *Sandbox) { *s = Sandbox{} }, "must be limited"},
		"no memory limit":             {func(s *Sandbox) { s.Limits.Memory = 0 }, "must be limited"},
		"no task limit":               {func(s *Sandbox) { s.Limits.Tasks = -1 }, "must be limited"},
		"negative quota":              {func(s *Sandbox) { s.Limits.CPU = -1 }, "must be limited"},
		"relative command":            {func(s *Sandbox) { s.Command = "node" }, `command "node"`},
		"option as command":           {func(s *Sandbox) { s.Command = "--bind" }, `command "--bind"`},
		"root as command":             {func(s *Sandbox) { s.Command = "/" }, `command "/"`},
		"no command":                  {func(s *Sandbox) { s.Command = "" }, `command ""`},
		"unclean directory":           {func(s *Sandbox) { s.Dir = "/home/../root" }, "working directory"},
		"option as host name":         {func(s *Sandbox) { s.Hostname = "-x" }, "host name"},
		"variable without a name":     {func(s *Sandbox) { s.Env[0].Name = "" }, "name of a variable"},
		"variable with =":             {func(s *Sandbox) { s.Env[0].Name = "A=B" }, "name of a variable"},
		"variable twice":              {func(s *Sandbox) { s.Env = append(s.Env, Env{Name: "TOKEN"}) }, "set twice"},
		"value and credential":        {func(s *Sandbox) { s.Env[1].Value = "x" }, "both a value and a credential"},
		"relative destination":        {insert(1, Mount{Kind: Dir, Dest: "srv"}), "clean absolute path"},
		"destination with ..":         {insert(1, Mount{Kind: Dir, Dest: "/srv/../etc"}), "clean absolute path"},
		"destination with slash":      {insert(1, Mount{Kind: Dir, Dest: "/srv/"}), "clean absolute path"},
		"empty destination":           {insert(1, Mount{Kind: Dir}), "clean absolute path"},
		"option as destination":       {insert(1, Mount{Kind: Dir, Dest: "--bind"}), "clean absolute path"},
		"second root":                 {insert(1, Mount{Kind: Tmpfs, Dest: "/"}), "mount tmpfs at /"},
		"host as root":                {insert(0, Mount{Kind: ROBind, Source: "/x", Dest: "/"}), "mount ro-bind at /"},
		"bind of the host":            {insert(1, Mount{Kind: ROBind, Source: "/", Dest: "/host"}), "the whole host"},
		"bind without source":         {insert(1, Mount{Kind: Bind, Dest: "/srv"}), "clean absolute path"},
		"relative source":             {insert(1, Mount{Kind: Bind, Source: "x", Dest: "/srv"}), "clean absolute path"},
		"source with ..":              {insert(1, Mount{Kind: Bind, Source: "/x/../etc", Dest: "/srv"}), "clean absolute path"},
		"link without text":           {insert(1, Mount{Kind: Symlink, Dest: "/srv"}), "has no text"},
		"two contents":                {insert(1, Mount{Kind: Data, Dest: "/srv", Text: "x", Credential: "TOKEN"}), "2 contents"},
		"credential and authority":    {insert(1, Mount{Kind: Data, Dest: "/srv", Credential: "TOKEN", Authority: true}), "2 contents"},
		"bind with a credential":      {insert(1, Mount{Kind: ROBind, Source: "/x", Dest: "/srv", Credential: "TOKEN"}), "nothing else any"},
		"tmpfs with an authority":     {insert(1, Mount{Kind: Tmpfs, Dest: "/srv", Authority: true}), "nothing else any"},
		"credential with NUL":         {insert(1, Mount{Kind: Data, Dest: "/srv", Credential: "A\x00B"}), "holds a NUL"},
		"data with source":            {insert(1, Mount{Kind: Data, Source: "/x", Dest: "/srv"}), "has a source"},
		"credential with source":      {insert(1, Mount{Kind: Data, Source: "/x", Dest: "/srv", Credential: "TOKEN"}), "has a source"},
		"relative certificates":       {insert(1, Mount{Kind: Data, Source: "x", Dest: "/srv", Authority: true}), "has a source"},
		"tmpfs with source":           {insert(1, Mount{Kind: Tmpfs, Source: "/x", Dest: "/srv"}), "has a source"},
		"unknown kind":                {insert(1, Mount{Kind: "dev-bind", Source: "/dev", Dest: "/srv"}), "unknown kind"},
		"no kind":                     {insert(1, Mount{Dest: "/srv"}), "unknown kind"},
		"negative size":               {insert(1, Mount{Kind: Tmpfs, Dest: "/srv", Size: -1}), "size -1"},
		"size of a directory":         {insert(1, Mount{Kind: Dir, Dest: "/srv", Size: 1}), "only a tmpfs has a size"},
		"mode out of range":           {insert(1, Mount{Kind: Dir, Dest: "/srv", Perms: 0o10000}), "mode 10000"},
		"destination twice":           {insert(beforeRemounts, Mount{Kind: Dir, Dest: "/run"}), `two mounts at "/run"`},
		"hides another":               {insert(beforeRemounts, Mount{Kind: Tmpfs, Dest: "/home"}), "hides the earlier one"},
		"bind below a writable bind":  {insert(beforeRemounts, Mount{Kind: ROBind, Source: "/x", Dest: "/home/mcp/x"}), "below the writable"},
		"dir below a writable bind":   {insert(beforeRemounts, Mount{Kind: Dir, Dest: "/home/mcp/.cache"}), "below the writable"},
		"link below a writable bind":  {insert(beforeRemounts, Mount{Kind: Symlink, Source: "x", Dest: "/home/mcp/a/b"}), "below the writable"},
		"data below a writable bind":  {insert(beforeRemounts, Mount{Kind: Data, Dest: "/home/mcp/.npmrc"}), "below the writable"},
		"tmpfs below a writable bind": {insert(beforeRemounts, Mount{Kind: Tmpfs, Dest: "/home/mcp/tmp"}), "below the writable"},
		"writable bind around":        {insert(beforeRemounts, Mount{Kind: Bind, Source: "/x", Dest: "/home"}), "hides the earlier one"},
		"remount of a writable bind":  {func(s *Sandbox) { s.Mounts[11].Dest = "/home/mcp" }, "touches the writable"},
		"mount through a link":        {insert(beforeRemounts, Mount{Kind: ROBind, Source: "/x", Dest: "/bin/x"}), "not a directory"},
		"mount on a link":             {insert(beforeRemounts, Mount{Kind: ROBind, Source: "/x", Dest: "/bin"}), "two mounts"},
		"mount below data":            {insert(beforeRemounts, Mount{Kind: Dir, Dest: "/etc/hosts/x"}), "not a directory"},
		"mount after a remount":       {func(s *Sandbox) { s.Mounts = append(s.Mounts, Mount{Kind: Dir, Dest: "/srv"}) }, "has to be last"},
		"remount twice":               {func(s *Sandbox) { s.Mounts = append(s.Mounts, Mount{Kind: Remount, Dest: "/"}) }, "remounted twice"},
	} {
		t.Run(name, func(t *testing.T) {
			s := small()
			c.change(&s)
			if err := s.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// A sibling whose name begins alike is not below.
func TestBelow(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"/a", "/a", true}, {"/a/b", "/a", true}, {"/ab", "/a", false}, {"/a", "/a/b", false}, {"/a", "/", true}, {"/", "/", true}, {"/", "/a", false},
	} {
		if got := Below(c.path, c.dir); got != c.want {
			t.Errorf("Below(%q, %q) is %v", c.path, c.dir, got)
		}
	}
}
