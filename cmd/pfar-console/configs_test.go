package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/units/attach"
	"github.com/pfar/pfar/units/clientfile"
)

// TestConfigs: the page of the clients has of each client the configuration for each program that pfar knows, exactly
// as pfar client config prints it, with a button that is there for the script alone. No client that pfar refuses has
// one.
func TestConfigs(t *testing.T) {
	o := openServers(t)
	o.says("")
	page := o.page("clients")
	web := clientfile.Web("http://127.0.0.1:7417/mcp", "desk", "", clientfile.Token)
	command := clientfile.Command("/usr/bin/pfar", "/run/pfar", "--client", "desk")
	for _, name := range clientfile.Names() {
		p, _ := clientfile.Find(name)
		entry := web
		if p.Stdio {
			entry = command
		}
		text, err := p.Write(entry)
		id := "config-0-" + name
		if err != nil || !strings.Contains(page, fmt.Sprintf(`id="%s">%s</pre>`, id, text)) {
			t.Errorf("%s: no %s in %s", name, text, page)
		}
		if !strings.Contains(page, fmt.Sprintf(`data-copy="%s" hidden>Copy for %s<`, id, name)) {
			t.Errorf("%s has no button: %s", name, page)
		}
	}
	if n := strings.Count(page, "Bearer TOKEN"); n != 2*(len(clientfile.Names())-1) ||
		strings.Contains(page, "config-2-") {
		t.Errorf("%d configurations have room for a token: %s", n, page)
	}
	if strings.Contains(o.page("servers"), "data-copy=") || !strings.Contains(page, "<script>") {
		t.Error("the script is not where the buttons are")
	}
}

// TestConfigsOf: who has no token connects by a command, and so do all if there is no endpoint. At another machine only
// programs that speak HTTP have one. What cannot be shown as it is, nobody copies.
func TestConfigsOf(t *testing.T) {
	const endpoint = "http://127.0.0.1:7417/mcp"
	here := attach.Connects{Pfar: "/usr/bin/pfar", Run: "/run/pfar"}
	all := len(clientfile.Names())
	for name, tt := range map[string]struct {
		client   attach.Client
		number   int
		endpoint string
		by       attach.Connects
		webs     int
		commands int
	}{
		"token":      {attach.Client{Name: "a", HasToken: true}, 0, endpoint, here, all - 1, 1},
		"no token":   {attach.Client{Name: "a"}, 0, endpoint, here, 0, all},
		"default":    {attach.Client{Name: access.Default}, 0, endpoint, here, all - 1, 1},
		"no port":    {attach.Client{Name: "a", HasToken: true}, 0, "", here, 0, all},
		"elsewhere":  {attach.Client{Name: "a", HasToken: true}, 0, endpoint, attach.Connects{}, all - 1, 0},
		"no way":     {attach.Client{Name: "a"}, 0, endpoint, attach.Connects{}, 0, 0},
		"refused":    {attach.Client{Name: "a", HasToken: true, Off: true}, 0, endpoint, here, 0, 0},
		"operator":   {attach.Client{Name: access.Operator}, 0, endpoint, here, 0, 0},
		"last":       {attach.Client{Name: "a"}, maxConfigs - 1, endpoint, here, 0, all},
		"one beyond": {attach.Client{Name: "a"}, maxConfigs, endpoint, here, 0, 0},
	} {
		got := configsOf(tt.client, tt.number, tt.endpoint, tt.by)
		webs, commands := 0, 0
		for _, c := range got.List {
			if strings.Contains(c.Text, endpoint+"/"+tt.client.Name) {
				webs++
			}
			if strings.Contains(c.Text, "/usr/bin/pfar") {
				commands++
			}
		}
		if webs != tt.webs || commands != tt.commands || got.Token != (webs > 0) || len(got.List) != webs+commands {
			t.Errorf("%s: %d by HTTP and %d by a command: %+v", name, webs, commands, got)
		}
	}
	for _, odd := range []string{`back\slash`, "bell\a", "\u202eright to left", "zero\u200bwidth"} {
		got := configsOf(attach.Client{Name: "a"}, 0, "", attach.Connects{Pfar: "/opt/" + odd, Run: "/run"})
		if one := got.List[0]; !one.Command || one.Text != "pfar client config a --for claude" {
			t.Errorf("%q: %+v", odd, one)
		}
	}
}
