package control

import "testing"

func TestDefaultDirs(t *testing.T) {
	tests := []struct {
		name string
		uid  int
		env  map[string]string
		want Dirs
	}{
		{"root", 0, map[string]string{"HOME": "/root", "XDG_RUNTIME_DIR": "/run/user/0", "XDG_STATE_HOME": "/s"},
			Dirs{"/run/pfar", "/var/lib/pfar", "/etc/pfar/mcp.d", "/var/lib/pfar/servers"}},
		{"user without XDG", 1000, map[string]string{"HOME": "/home/a"},
			Dirs{"/dev/shm/pfar-1000", "/home/a/.local/state/pfar", "/home/a/.config/pfar/mcp.d", "/home/a/.local/state/pfar/servers"}},
		{"user with XDG", 1000, map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "/run/user/1000", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "/c"},
			Dirs{"/run/user/1000/pfar", "/s/pfar", "/c/pfar/mcp.d", "/s/pfar/servers"}},
		{"relative XDG paths are ignored", 1000, map[string]string{"HOME": "/home/a", "XDG_RUNTIME_DIR": "run", "XDG_STATE_HOME": "s", "XDG_CONFIG_HOME": "./c"},
			Dirs{"/dev/shm/pfar-1000", "/home/a/.local/state/pfar", "/home/a/.config/pfar/mcp.d", "/home/a/.local/state/pfar/servers"}},
		{"own variables win", 0, map[string]string{"PFAR_RUN_DIR": "/r", "PFAR_STATE_DIR": "/s", "PFAR_CONFIG_DIR": "/c", "PFAR_SERVERS_DIR": "/v"},
			Dirs{"/r", "/s", "/c", "/v"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := DefaultDirs(func(k string) string { return tt.env[k] }, tt.uid); got != tt.want {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
	d := Dirs{Run: "/r", State: "/s"}
	for got, want := range map[string]string{
		d.Control(): "/r/control.sock", d.Gateway(): "/r/gateway.sock", d.Token(): "/s/token", d.Log("notion"): "/s/log/notion.log",
		d.Egress("notion"): "/r/egress/notion.sock",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestAbsolute(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	got, err := Dirs{Run: "run", State: "/s/../state", Config: ".", Servers: "a//b"}.Absolute()
	want := Dirs{Run: dir + "/run", State: "/state", Config: dir, Servers: dir + "/a/b"}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
