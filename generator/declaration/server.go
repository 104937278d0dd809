// Package declaration reads mcp.d: HCL or TOML files in, servers and diagnostics with line and column out.
package declaration

import (
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"

	"github.com/pfar/pfar/policies/broker"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/policies/gate"
)

// Server is one declaration, complete and valid: every default is filled in.
type Server struct {
	Name        string // [a-z][a-z0-9-]{0,22}
	Of          string `json:",omitempty"` // the server that it is a named instance of: "browser", of browser.research.hcl; "": none
	File        string // path that it was read from
	Description string
	Label       Label             // of what comes out; Says("label") tells whether the file gives it
	Service     string            // whose facts apply to its tools; "": the one of its name, or of its package
	Allowed     []egress.Endpoint // allowed_domains; empty: no network
	Blocked     []egress.Endpoint `json:",omitempty"` // blocked_domains: names alone
	Private     []egress.Private  // allow_private: names of Allowed, each once

	TLSPins map[string][]broker.Pin `json:",omitempty"` // tls_pins, by host of a brokered credential: keys, one of which its certificates have

	Transport Transport
	Address
	Program

	Enabled     bool          // false: known, never started
	Autostart   bool          // start with pfar; false: with the first call
	IdleTimeout time.Duration // stop after so long without a call; 0: never
	Calls

	Capabilities []string // client_capabilities, sorted: "elicitation", "roots", "sampling"; empty: it asks clients nothing
	Sessions     Sessions
	Pins         Pins

	Credentials []Credential // auth and token_env, sorted by Env
	Env         []Variable   // env, sorted by Name
	Scopes      []string     // auth { scopes }: required of those of Credentials that are OAuth token sets

	Sandbox Sandbox
	Trust   gate.Trust
	Tools   map[string]Tool // by name, in which * stands for any characters

	written
}

// Address is where pfar reaches a server. If pfar starts the server, it lies in the server's sandbox.
type Address struct {
	URL      string // sse, stream-http; uds: the path alone matters, "" for /mcp
	Insecure string `json:",omitempty"` // why URL may be without encryption; "": it has it, or leads to this machine
	CA       string `json:",omitempty"` // file of the authorities for URL's host, in place of the system's
	Path     string // uds: the socket; pipe: of its FIFOs, without ".in" and ".out"
	Owner    string `json:",omitempty"` // the user of a server that pfar does not start; "": root, or pfar's own
}

// Calls is how long a call may take, and what becomes of one that fails.
type Calls struct {
	Timeout time.Duration // longest that one may take
	Retries int           `json:",omitempty"` // how often one is sent again that certainly only reads; 0: never
}

// Program is what pfar starts, and what it expects of that.
type Program struct {
	Package string `json:",omitempty"` // "npm:NAME@VERSION" or "pypi:NAME==VERSION"; "": none
	Command string // as written, not looked up; with Package one of its programs, "" for the main one
	Args    []string
	Version string // that the server is expected to have; "" expects none
}

// written says where the files give what.
type written struct {
	places  map[string]hcl.Range
	sources []Origin
}

// Find returns the server of a name.
func Find(servers []Server, name string) (Server, bool) {
	i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
	if i < 0 {
		return Server{}, false
	}
	return servers[i], true
}

// VaultKeys returns the keys of the vault that the credentials of a server name.
func (s *Server) VaultKeys() (keys []string) {
	for _, c := range s.Credentials {
		if c.Key != "" {
			keys = append(keys, c.Key)
		}
	}
	return keys
}

// Place returns where the file gives a key: "command", "sandbox.state", or one entry of a list, "args[0]". It is the
// file's start for what the file leaves out, so that a diagnostic about a default has a subject too.
func (s *Server) Place(key string) hcl.Range {
	if at, ok := s.places[key]; ok {
		return at
	}
	return hcl.Range{Filename: s.File, Start: hcl.InitialPos, End: hcl.InitialPos}
}

// Says reports whether the file gives a key, as Place has it.
func (s *Server) Says(key string) bool {
	_, ok := s.places[key]
	return ok
}

// Starts reports whether pfar starts the server, in a sandbox.
func (s *Server) Starts() bool { return s.Command != "" || s.Package != "" }

// Remote reports whether the server runs elsewhere, and is reached at URL.
func (s *Server) Remote() bool { return s.Transport.web() && !s.Starts() }

// Attached reports whether the server runs on this host without pfar, and is reached at Path.
func (s *Server) Attached() bool { return (s.Transport == UDS || s.Transport == Pipe) && !s.Starts() }

// Label is how sensitive a server's output is, in the order of the constants; the zero value is not valid.
type Label string

const (
	Public    Label = "public"
	Internal  Label = "internal"
	Sensitive Label = "sensitive"
	Regulated Label = "regulated"
	Secret    Label = "secret"
)

// labels are the words of Label.
func labels() []string {
	return []string{string(Public), string(Internal), string(Sensitive), string(Regulated), string(Secret)}
}

// Transport is how pfar speaks to the server.
type Transport string

const (
	Stdio      Transport = "stdio"
	UDS        Transport = "uds"
	Pipe       Transport = "pipe"
	SSE        Transport = "sse"
	StreamHTTP Transport = "stream-http"
)

// web reports whether the server is reached at a URL.
func (t Transport) web() bool { return t == SSE || t == StreamHTTP }

// Credential is a secret that the server gets. The value is never here.
type Credential struct {
	Env     string // the variable that holds the value, the path of a file with it, or the placeholder
	Key     string // vault key, from "vault:KEY"
	From    string // or the name of a variable of pfar's own environment, from "$NAME" or token_env
	Deliver broker.Delivery
	Hosts   []egress.Endpoint // broker.OnWire: where the value may go, each of Allowed
	Places  []broker.Place    // broker.OnWire: where in a request
}

// Variable is one literal of env.
type Variable struct{ Name, Value string }

// Sandbox is what the sandbox block changes.
type Sandbox struct {
	Memory     int64 // memory_limit, bytes
	Tasks      int   // tasks_max, processes and threads
	CPU        int   // cpu_quota, percent of one core; 0: none
	ReadOnlyFS bool  // false: the sandbox's own root is scratch space; the host's files stay read-only all the same
	AllowTmp   bool  // a private, sized /tmp
	ReadOnly   []string
	Writable   []string
	State      bool // a private home that outlives the process
	Undo       Undo
}

// Undo says how what a server overwrites in folders that outlive it is kept. The zero value keeps nothing.
type Undo struct {
	On   bool          // undo
	Size int64         // undo_size, bytes
	Time time.Duration // undo_time
}

// Tool is what the owner says of one tool, or of all whose names fit.
type Tool struct {
	Semantics string   // "read", "write" or "" (not said)
	Aliases   []string // alias: further names for the command line; no two of one file are alike

	Effect   gate.Effect          `json:",omitzero"` // what a call does; 0: not said
	Audience gate.Confidentiality `json:",omitzero"` // the highest that its arguments may carry; 0: not said
	Output   gate.Label           `json:",omitzero"` // of what comes out, either half 0: not said

	Scopes []string `json:",omitempty"` // that a call needs the server's OAuth tokens to have been granted

	Enabled     *bool  `json:",omitempty"` // false: no client has it; nil: not said
	Rename      string `json:",omitempty"` // the name that clients see; "": the server's own
	Description string `json:",omitempty"` // that clients see in place of the server's own

	// What of the tool is which in flows. nil: the rule of package policies/flow/node; empty: none.
	Inputs  []string `json:",omitzero"`
	Params  []string `json:",omitzero"`
	Outputs []string `json:",omitzero"`
}

// Sessions says whether each client session has a process of the server's to itself. The zero value is one process for
// all of them.
type Sessions struct {
	Own  bool          // sessions = "own"
	Max  int           // sessions_max, processes at once; 0 without Own
	Idle time.Duration // session_idle, without a call until a process is stopped; 0 without Own
}

// Pins says what becomes of what a server offers for the first time; the zero value is not valid.
type Pins string

const (
	Hold       Pins = "hold"        // nothing of it is served until the owner accepts it
	TrustFirst Pins = "trust-first" // it is accepted; what changes later is held
)
