package control

import (
	"reflect"
	"slices"
	"testing"
)

func TestDefaultDirs(t *testing.T) {
	tests := []struct {
		name string
		uid  int
		env  map[string]string
		want Dirs
	}{
		{"root", 0, map[string]string{"HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0", "XDG_STATE_HOME": "/s"},
			Dirs{"/run/pfar", "/var/lib/pfar", "/etc/pfar/mcp.d", []string{"/run/pfar/mcp.d", "/usr/lib/pfar/mcp.d"},
				"/var/lib/pfar/servers"}},
		{"user without XDG", 1000, map[string]string{"HOME": "/home/a"},
			Dirs{"/dev/shm/pfar-1000", "/home/a/.local/state/pfar", "/home/a/.config/pfar/mcp.d",
				[]string{"/dev/shm/pfar-1000/mcp.d", "/home/a/.local/share/pfar/mcp.d"}, "/home/a/.local/state/pfar/servers"}},
		{"user with XDG", 1000, map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/1000",
			"XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d"},
			Dirs{"/run/user/1000/pfar", "/s/pfar", "/c/pfar/mcp.d", []string{"/run/user/1000/pfar/mcp.d",
				"/d/pfar/mcp.d"}, "/s/pfar/servers"}},
		{"relative XDG paths are ignored", 1000, map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "./c"},
			Dirs{"/dev/shm/pfar-1000", "/home/a/.local/state/pfar", "/home/a/.config/pfar/mcp.d",
				[]string{"/dev/shm/pfar-1000/mcp.d", "/home/a/.local/share/pfar/mcp.d"}, "/home/a/.local/state/pfar/servers"}},
		{"own variables win", 0, map[string]string{"PFAR_RUN_DIR": "/r", "PFAR_STATE_DIR": "/s", "PFAR_CONFIG_DIR": "/c", "PFAR_SERVERS_DIR": "/v"},
			Dirs{"/r", "/s", "/c", []string{}, "/v"}},
		{"several folders", 0, map[string]string{"PFAR_RUN_DIR": "/r", "PFAR_STATE_DIR": "/s",
			"PFAR_CONFIG_DIR": "/c:/b:/a", "PFAR_SERVERS_DIR": "/v"},
			Dirs{"/r", "/s", "/c", []string{"/b", "/a"}, "/v"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := DefaultDirs(func(k string) string { return tt.env[k] }, tt.uid); !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	d := Dirs{Run: "/r", State: "/s"}
	for got, want := range map[string]string{
		d.Control(): "/r/control.sock", d.Gateway(): "/r/gateway.sock", d.Token(): "/s/token", d.Log("notion"): "/s/log/notion.log",
		d.Egress("notion"): "/r/egress/notion.sock", d.Passkey(): "/r/passkey.sock", d.Operators(): "/s/operators.json",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	got, err := Dirs{Run: "run", State: "/s/../state", Config: ".", Below: []string{"b", "/x/"},
		Servers: "a//b"}.Absolute()
	want := Dirs{Run: dir + "/run", State: "/state", Config: dir, Below: []string{dir + "/b", "/x"},
		Servers: dir + "/a/b"}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// TestFolders: a folder that somebody names stands alone, and none of pfar's may be bound.
func TestFolders(t *testing.T) {
	d := Dirs{Config: "/etc/pfar/mcp.d", Below: []string{"/run/pfar/mcp.d", "/usr/lib/pfar/mcp.d"}}
	if got := d.Folders("/etc/pfar/mcp.d"); !slices.Equal(got, []string{"/etc/pfar/mcp.d", "/run/pfar/mcp.d",
		"/usr/lib/pfar/mcp.d"}) {
		t.Errorf("of the machine: %q", got)
	}
	if got := d.Folders("/srv/mine"); !slices.Equal(got, []string{"/srv/mine"}) {
		t.Errorf("of a directory: %q", got)
	}
	d.State = "/s"
	got := d.Private("/etc/pfar/mcp.d")
	if !slices.Contains(got, "/etc/pfar/mcp.d") || !slices.Contains(got, "/run/pfar/mcp.d") || slices.Contains(got,
		"/usr/lib/pfar/mcp.d") || !slices.Contains(got, d.Operators()) {
		t.Errorf("private: %q", got)
	}
}
