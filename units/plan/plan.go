// Package plan holds everything that pfar will create for one server as data, and tells how two plans differ.
package plan

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/handover"
	"github.com/pfar/pfar/units/sandbox"
)

// Plan is all that pfar will create for one server. It is written to the run directory for the server's own processes,
// so it holds no secret.
type Plan struct {
	Name        string          `json:"name"`
	File        string          `json:"file"`
	Enabled     bool            `json:"enabled"`
	Autostart   bool            `json:"autostart"`
	State       bool            `json:"state"` // wants a private persistent home
	Gateway     handover.Server `json:"gateway"`
	Sandbox     sandbox.Sandbox `json:"sandbox"`
	Egress      egress.Policy   `json:"egress"`
	Credentials []Credential    `json:"credentials,omitempty"`
	Files       []string        `json:"files,omitempty"`   // of its program, by which another one is told (fingerprint.Of)
	Scopes      []string        `json:"scopes,omitempty"`  // that those of them which are OAuth token sets are to have been granted
	Setting     string          `json:"setting,omitempty"` // SHA-256 over the declared variables, in hexadecimal; "": none

	// Fault is why there is nothing to run: its unit fails, with these words. The rest is empty then.
	Fault string `json:"fault,omitempty"`

	Proofs

	Undo *Undo `json:"undo,omitempty"` // nil: nothing is kept of what the server overwrites
}

// Proofs are what hosts that the bridge opens connections to have to show beside what every host has.
type Proofs struct {
	// Both by host: keys, one of which is in its certificates, and authorities in PEM, in place of the system's.
	TLSPins map[string][]broker.Pin `json:"tls_pins,omitempty"`
	CA      map[string]string       `json:"ca,omitempty"`

	Insecure string `json:"insecure,omitempty"` // why a remote server shows nothing: it is reached without encryption
}

// Proven are the hosts that the bridge opens connections to though no secret goes there: to see what they show.
func (p Plan) Proven() (list []egress.Endpoint) {
	secret := func(host string) bool {
		return slices.ContainsFunc(p.Credentials, func(c Credential) bool {
			return slices.ContainsFunc(c.Hosts, func(e egress.Endpoint) bool { return e.Host == host })
		})
	}
	for _, e := range p.Egress.Endpoints {
		_, pinned := p.TLSPins[e.Host]
		if (pinned || p.CA[e.Host] != "") && !e.Wildcard && !secret(e.Host) {
			list = append(list, e)
		}
	}
	return list
}

// Undo says what the launcher keeps of folders that the server may write to, so that calls can be taken back.
type Undo struct {
	Dir     string        `json:"dir"` // where it keeps that: the server does not see it
	Folders []Folder      `json:"folders"`
	Size    int64         `json:"size"` // bytes, at most
	Time    time.Duration `json:"time"` // nanoseconds in JSON
}

// Found says where the launcher finds a folder.
func (u *Undo) Found(path, source string) {
	if u == nil {
		return
	}
	for i := range u.Folders {
		if u.Folders[i].Path == path {
			u.Folders[i].Source = source
		}
	}
}

// Folder is a folder, or a file, that outlives the server.
type Folder struct {
	Path   string `json:"path"`             // on the host
	Source string `json:"source,omitempty"` // where the launcher finds it; "": there
}

// PrivateHome is the directory on the host that the server has as its home from one run to the next, "" if none.
func (p Plan) PrivateHome() string {
	for _, m := range p.Sandbox.Mounts {
		if m.State {
			return m.Source
		}
	}
	return ""
}

// OwnDirs are the directories on the host that belong to the server's user: its private home, and what is kept of what
// it overwrites.
func (p Plan) OwnDirs() (dirs []string) {
	if home := p.PrivateHome(); home != "" {
		dirs = append(dirs, home)
	}
	if p.Undo != nil {
		dirs = append(dirs, p.Undo.Dir)
	}
	return dirs
}

// Declared is what the gate is told of the server. It reports false if that cannot be read.
func (p Plan) Declared() (gate.Declared, bool) {
	d := gate.Declared{Server: p.Name}
	err := error(nil)
	if p.Gateway.Declared != nil {
		err = json.Unmarshal(p.Gateway.Declared, &d)
	}
	return d, err == nil
}

// Credential says where the value of Name comes from. The value is never here.
type Credential struct {
	Name string `json:"name"`           // the environment variable, and the file in $CREDENTIALS_DIRECTORY
	Key  string `json:"key,omitempty"`  // of the vault
	From string `json:"from,omitempty"` // or a variable of pfar's own environment

	Deliver broker.Delivery   `json:"deliver,omitempty"`
	Hosts   []egress.Endpoint `json:"hosts,omitempty"`  // of a brokered one
	Places  []broker.Place    `json:"places,omitempty"` // likewise
}

// Inspection is what the process of an inspector is given: pfar-sandbox of a program, pfar-egress of a model or a
// notice.
type Inspection struct {
	Sandbox   sandbox.Sandbox    `json:"sandbox"` // of a program
	Inspector inspector.External `json:"inspector"`
}
