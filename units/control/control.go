// Package control is pfard's socket: the verbs that the CLI and the gateway may ask of it, and what it answers.
//
// One JSON request per connection, answered by one JSON response; a watch, learning, demand, redaction, clients and
// policy answer with one response per change until either side closes, and stuck lasts as long. The peer is known by
// its credentials (SO_PEERCRED, unix(7)), never by what it says.
package control

import (
	"encoding/json"
	"os"
	"slices"
	"time"

	"github.com/pfar/pfar/policies/access"
	"github.com/pfar/pfar/policies/egress"
	"github.com/pfar/pfar/units"
	"github.com/pfar/pfar/units/handover"
)

// Verb is what a request asks for. The list is closed: anything else is refused.
type Verb string

const (
	Status      Verb = "status"        // every server and every broken declaration
	Watch       Verb = "watch"         // Status now and after each change
	Plan        Verb = "plan"          // the plan of Server, or of all
	Start       Verb = "start"         // start Server, also one that failed: its crashes are forgotten
	Stop        Verb = "stop"          // stop Server; it stays stopped until Start or its file changes
	Restart     Verb = "restart"       // Stop and Start
	Enable      Verb = "enable"        // Start Server and take Disable back
	Disable     Verb = "disable"       // Stop Server, and start it no more until Enable, also after a restart of pfard or the machine
	Learn       Verb = "learn"         // run Server in learning mode as long as the connection stays open; answered as Watch is
	Open        Verb = "open-session"  // start a process of Server for Session alone; the answer comes when it is under way
	Close       Verb = "close-session" // stop that process; answered at once, and what is not open is closed
	Wake        Verb = "wake"          // a call wants Server: start it if it sleeps, answered when it is under way; try it if it is offline, answered at once
	Sleep       Verb = "sleep"         // stop Server, which nobody calls, until Wake; if it Renews start it again. Answered as Wake is
	Demand      Verb = "demand"        // the servers on demand and those that renew, now and after each change
	Redaction   Verb = "redaction"     // what secrets are recognised by, now and after each change
	Clients     Verb = "clients"       // who may use what, now and after each change
	Audit       Verb = "audit"         // open the gateway's newest audit file, or the next one if that has enough
	LastRefusal Verb = "last-refusal"  // the last connection that was refused to Server, or to its process for Session
	Stuck       Verb = "stuck"         // the gateway's records cannot be written, as long as the connection stays open; answered once
	Policy      Verb = "policy"        // what calls are decided by, once there is something, and after each change
	Store       Verb = "store"         // store Secret under Key in the vault
	Rotate      Verb = "rotate"        // the same, where there is one already
	Secrets     Verb = "secrets"       // what is in the vault, never the values
	Remove      Verb = "remove"        // remove Key from the vault
	Rekey       Verb = "rekey"         // give the vault another key of its own
	Export      Verb = "export"        // Keys of the vault, or all, as a bundle that is encrypted to Recipient
	Import      Verb = "import"        // store what is in Bundle, all or nothing
	Give        Verb = "give"          // tell on what Server is not given secrets of the vault, and if Gift is what was told give it them
	Clean       Verb = "clean"         // tell what Server left behind, which is not declared; with Remove, delete it
	Declare     Verb = "declare"       // write Text as the owner's declaration of Server, if it is sound
	Undeclare   Verb = "undeclare"     // remove the owner's declaration of Server; hide an installed one
	List        Verb = "list"          // run Server, or what Text makes of it, cut off from all, and tell what it offers
	Install     Verb = "install"       // install Package (no version: find it) or Server's; answered with each change
	Begin       Verb = "set-up"        // begin SetUp or, without it, join what is under way; answered with each change
	LogIn       Verb = "login"         // obtain an OAuth token of Server for the vault; answered until it is stored
	Console     Verb = "console"       // a link to the console of the peer, which works once; with Await its end too
	Logout      Verb = "logout"        // end the console of the peer, with all that are signed in there
	Operators   Verb = "operators"     // who has passkeys for the remote console, and who is invited
	Invite      Verb = "invite"        // a link by which a person adds a passkey to Operator, once
	Dismiss     Verb = "dismiss"       // remove Operator with its passkeys and invitations
	ChangeRole  Verb = "change-role"   // give Operator, who has a passkey, another role
	Supply      Verb = "supply"        // Secret is the value that the set-up of Answer waits for, or Answer says otherwise
)

var verbs = []Verb{
	Status, Watch, Plan, Start, Stop, Restart, Enable, Disable, Learn, Open, Close, Wake, Sleep, Demand, Redaction, Clients, Audit, Stuck, Policy,
	LastRefusal, Store, Rotate, Secrets, Remove, Rekey, Export, Import, Give, Clean,
	Declare, Undeclare, List, Install, Begin, Supply, LogIn, Console, Logout, Operators, Invite, Dismiss, ChangeRole,
}

// Request is one question.
type Request struct {
	Verb    Verb   `json:"verb"`
	Server  string `json:"server,omitempty"`
	Session string `json:"session,omitempty"` // its handle (units.NewSession)
	Key     string `json:"key,omitempty"`
	Secret  string `json:"secret,omitempty"`
	OAuth   bool   `json:"oauth,omitempty"` // Secret is a token set in JSON (oauth.Parse)

	Keys      []string `json:"keys,omitempty"`
	Recipient string   `json:"recipient,omitempty"` // an age public key
	Bundle    []byte   `json:"bundle,omitempty"`    // JSON, as Export encrypts it
	Why       string   `json:"why,omitempty"`       // of Stuck, in words
	Replace   bool     `json:"replace,omitempty"`   // Import may replace what has another value
	Gift      string   `json:"gift,omitempty"`      // Gift.Digest, of Give
	Remove    bool     `json:"remove,omitempty"`    // Clean deletes what it tells
	Text      *Text    `json:"text,omitempty"`      // of Declare, Undeclare and List
	SettingUp
}

// Response is one answer. Error is set if the request was refused, and then nothing else is.
type Response struct {
	Refusing
	Status  *Report  `json:"status,omitempty"`
	Secrets []Secret `json:"secrets,omitempty"` // in the vault, by key
	Changes []Change `json:"changes,omitempty"` // of the vault
	Bundle  []byte   `json:"bundle,omitempty"`  // encrypted
	Gift    *Gift    `json:"gift,omitempty"`    // of Give

	Refusal *Refusal `json:"refusal,omitempty"` // of LastRefusal; nil: there was none

	Declarations

	OnDemand  []OnDemand `json:"on_demand,omitempty"` // all of them, by name
	Redaction []byte     `json:"redaction,omitempty"` // a redact.Set

	Clients []access.Client `json:"clients,omitempty"` // declared, by name; nothing in it is secret
	Files   []*os.File      `json:"-"`                 // attached (SCM_RIGHTS, unix(7)): of Audit those of trail.Files, the last of which may be missing
	Policy  json.RawMessage `json:"policy,omitempty"`  // a gate.Policy

	Sandboxes json.RawMessage `json:"sandboxes,omitempty"` // of Policy: a list of gate.Sandbox, all there are
}

// Refusal is a connection that a server's bridge has refused.
type Refusal struct {
	Time    time.Time      `json:"time"`
	File    string         `json:"file"` // of the declaration, without its directory
	Refused egress.Refusal `json:"refused,omitzero"`
}

// Secret is what is told of a secret.
type Secret struct {
	Key     string     `json:"key"`
	Kind    string     `json:"kind,omitempty"`    // "plain" or "oauth"
	Stored  *time.Time `json:"stored,omitempty"`  // when
	Servers []string   `json:"servers"`           // that name it, and "inspector NAME" or "notice NAME"
	Damaged string     `json:"damaged,omitempty"` // why it cannot be read

	Expiry  *time.Time `json:"expiry,omitempty"`  // of an OAuth access token, if it is known
	Problem string     `json:"problem,omitempty"` // why a token set is not fresh, with the remedy
	Refused bool       `json:"refused,omitempty"` // with Problem: nobody tries again

	Unrefreshed string `json:"unrefreshed,omitempty"` // why a token set is not refreshed though nothing is wrong, in words

	Scopes []string `json:"scopes,omitempty"` // that a token set was granted, if it says so
}

// Change is what has become of one secret, and of the servers whose declarations name it.
type Change struct {
	Key    string `json:"key"`
	Result string `json:"result"` // "new", "changed", "equal" (to what was there), "removed"
	Uses   []Use  `json:"uses,omitempty"`

	Unsearched  string `json:"unsearched,omitempty"`  // why the value is not kept out of what servers say, in words; "": it is
	Unrefreshed string `json:"unrefreshed,omitempty"` // why the token set is never refreshed, in words; "": it is, or is none
}

// Gift is what a server's declaration asks for as it is now, and is not given.
type Gift struct {
	Server string   `json:"server"`
	Keys   []string `json:"keys"`             // of the vault; none: nothing is kept from it
	Why    []string `json:"why"`              // one for each of Keys, in words
	Digest string   `json:"digest,omitempty"` // over Keys, and what they would be given on
	Given  bool     `json:"given,omitempty"`  // they are now
}

// Use says what becomes of a server for which a secret has changed.
type Use struct {
	Server string `json:"server"`
	Then   Then   `json:"then"`
	Why    string `json:"why,omitempty"` // of Waits, if not for want of a secret: in words, with the remedy
}

// Then is what becomes of a server.
type Then string

const (
	Restarts Then = "restarts" // with what there is now
	Waits    Then = "waits"    // for what it does not have
	Starts   Then = "starts"   // it has waited for it
	Later    Then = "later"    // it does not run, and gets it when it does
	RunsOn   Then = "runs-on"  // it runs on, and its bridge has the value

	Unconfirmed Then = "unconfirmed" // it runs on, and its bridge has not said in time that it has the value
)

// OnDemand is a server that calls start, as the gateway may know it: nothing in it is secret. It sleeps, or there is a
// reason why it does not run and a call will not start it, or it runs or is on its way up or down.
type OnDemand struct {
	Server  handover.Server `json:"server"`
	Sleeps  bool            `json:"sleeps,omitempty"`  // a call may start it
	Returns bool            `json:"returns,omitempty"` // it is being started again: requests wait for it
	Renews  bool            `json:"renews,omitempty"`  // it runs, and is to be started again when no request is under way: Sleep does it
	Down    State           `json:"down,omitempty"`    // it does not run; "": it does, or may
	Stays   bool            `json:"stays,omitempty"`   // down until somebody starts it
	Offline bool            `json:"offline,omitempty"` // pfar tries again and again to reach it: Wake has it tried now
	Next    time.Time       `json:"next,omitzero"`     // with Offline: when that is done without Wake
	Failed  string          `json:"failed,omitempty"`  // with Offline: failure.Class of the last try; "": not known

	AsksLater bool `json:"asks_later,omitempty"` // with Offline: its service has set Next, and Wake does not change it

	Login bool `json:"login,omitempty"` // it waits until a person signs in
}

// State is where a server is in its life.
type State string

const (
	Waiting  State = units.StateWaiting // Detail says for what: a credential, or a word of the owner's
	Stopped  State = units.StateStopped
	Sleeping State = units.StateSleeping
	Starting State = units.StateStarting
	Running  State = units.StateRunning
	BackOff  State = units.StateBackOff
	Offline  State = units.StateOffline
	Failed   State = units.StateFailed
	Stopping State = units.StateStopping

	Fetching State = "installing" // its package is being installed

	// CredentialInvalid is a server that runs as in Running, and whose Verification.Result is units.Invalid: no client
	// sees its tools until another value is stored. Who waits for Running has to expect it as well.
	CredentialInvalid State = units.StateInvalid
	// NeedsLogin is a server that waits as in Waiting, until a person signs in. Its Remedy is the command.
	NeedsLogin State = units.StateLogin
)

// Up reports whether the server's process runs and answers, whatever its secrets are.
func (s State) Up() bool { return s == Running || s == CredentialInvalid }

// Waits reports whether the server does not run until a person does something.
func (s State) Waits() bool { return s == Waiting || s == NeedsLogin }

// TriedAgain reports whether the server does not run, and pfar starts it again by itself.
func (s State) TriedAgain() bool { return s == BackOff || s == Offline }

// Off is why a server that is Stopped may not be started; the zero value: it may be.
type Off string

const (
	OffByFile     Off = "file"     // enabled = false in its declaration
	OffByOperator Off = "operator" // Disable
)

// ClientFiles are declarations of clients, by path, and the SHA-256 of what was last read of each, in hexadecimal; nil:
// not known.
type ClientFiles map[string]string

// Report is all that pfard knows of what it runs.
type Report struct {
	Version     string       `json:"version"`
	Directory   string       `json:"directory"`            // of the declarations
	Clients     string       `json:"clients"`              // the directory of the declared clients
	ClientFiles ClientFiles  `json:"client_files"`         // that pfard has read
	Policies    string       `json:"policies"`             // the directory of the gate's policies
	Programs    string       `json:"programs"`             // the directory of the programs installed for servers
	Endpoint    string       `json:"endpoint"`             // the gateway's URL on loopback, ending in /mcp
	PortFault   string       `json:"port_fault,omitempty"` // why clients of HTTP do not get in; "": they do, or there is no port
	TokenFile   string       `json:"token_file"`
	Socket      string       `json:"socket"`            // the gateway's Unix socket
	Journal     bool         `json:"journal,omitempty"` // logs are in the journal, under the units' names, and not in files
	Servers     []Server     `json:"servers"`
	Diagnostics []Diagnostic `json:"diagnostics,omitempty"` // of files that are broken now
	Notes       []string     `json:"notes,omitempty"`       // what does not hold on this host, in words
	Undeclared
}

// Undeclared is what there is beside declared servers. A report is passed on, so it has no link of a page.
type Undeclared struct {
	Leftovers []string `json:"leftovers,omitempty"` // undeclared servers that left something behind
	SetUps    []Flow   `json:"set_ups,omitempty"`   // that are under way, by server, without Page
	Models    []Model  `json:"models,omitempty"`    // of the policy in force, by name
	Chats     []string `json:"chats,omitempty"`     // why nobody can talk at which chats, in words, as in Notes
}

// Model is a model that the owner has declared for flows and pfar ask.
type Model struct {
	Name     string   `json:"name"`
	Host     string   `json:"host"`  // that it is asked at
	Model    string   `json:"model"` // the API's name for it
	Uses     []string `json:"uses"`  // "plan", "answer", "nodes"
	Audience string   `json:"audience"`
	Local    bool     `json:"local"`             // clients on the Unix socket alone may ask it
	Key      string   `json:"key,omitempty"`     // of the vault; "": it needs none
	Missing  string   `json:"missing,omitempty"` // why there is no value of Key; "": there is
}

// Server is one server's state.
type Server struct {
	Name        string    `json:"name"`
	State       State     `json:"state"`
	Detail      string    `json:"detail,omitempty"` // status line in words
	File        string    `json:"file"`
	Description string    `json:"description,omitempty"`
	Label       string    `json:"label"`
	Tools       int       `json:"tools"`
	PID         int       `json:"pid,omitempty"`      // of the launcher
	Launcher    string    `json:"launcher,omitempty"` // version of the launcher, if it is not of this pfard's: the server began before an upgrade
	UID         int       `json:"uid"`                // of the sandboxed process, on the host
	Since       time.Time `json:"since"`              // of State
	Crashes     int       `json:"crashes"`            // in a row
	Denial
	Owed
	Log     string `json:"log"`               // path of its log, or the command that shows it in the journal
	Shared  string `json:"shared,omitempty"`  // the machine's files that it shares, locks and all, and why
	Limits  string `json:"limits,omitempty"`  // how memory, tasks and CPU are held, or that they are not
	Unknown string `json:"unknown,omitempty"` // that nothing is known of what its tools do, and what to write
	Stale   bool   `json:"stale,omitempty"`   // its file is broken now; the last good version runs
	Broken  bool   `json:"broken,omitempty"`  // its file is broken, and there is no earlier version to run
	Reach
	SessionsMax int       `json:"sessions_max,omitempty"` // processes for one client session each, at most; 0: all share one
	Sessions    []Session `json:"sessions,omitempty"`     // those that have one, by handle
}

// Reach is where a server is, how pfar speaks with it, and what it may connect to.
type Reach struct {
	units.Speech
	URL      string   `json:"url,omitempty"`             // of a remote server; "": it runs on this machine
	Attached string   `json:"attached,omitempty"`        // socket or FIFO pair of a server that pfar does not start
	Domains  []string `json:"allowed_domains,omitempty"` // declared, in the declaration's order
	Learning bool     `json:"learning,omitempty"`        // somebody records what it wants to reach (Learn)
}

// Owed is what a server owes to its owner, or its owner to it: a word, a secret, or a better one.
type Owed struct {
	units.Wait
	Off          Off          `json:"off,omitempty"`
	Verification Verification `json:"verification,omitzero"`

	SignInPage bool `json:"sign_in_page,omitempty"` // a one-time page can have a person sign in, for which it waits
}

// Verification is whether a call has shown a server's secrets to be right.
type Verification = units.Verification

// Denial is the connections that a server was refused.
type Denial struct {
	LastRefusal string         `json:"last_refusal,omitempty"` // in words
	LastRefused time.Time      `json:"last_refused,omitzero"`  // when that was
	Refused     egress.Refusal `json:"refused,omitzero"`       // LastRefusal as data

	Refusals []egress.Refusal `json:"refusals,omitempty"` // of different hosts, the last ones, newest last
}

// maxRefusals bounds Denial.Refusals: a server may ask for names that it makes up.
const maxRefusals = 16

// Add takes another refusal.
func (d *Denial) Add(r egress.Refusal, at time.Time) {
	d.Refused, d.LastRefusal, d.LastRefused = r, r.String(), at.UTC()
	same := func(o egress.Refusal) bool { return o.Host == r.Host }
	all := slices.DeleteFunc(slices.Clone(d.Refusals), same) // reports share the old list
	d.Refusals = append(all, egress.Refusal{Host: r.Host, Reason: r.Reason})
	d.Refusals = d.Refusals[max(0, len(d.Refusals)-maxRefusals):]
}

// Launchers are the processes that stand above those of the server.
func (s Server) Launchers() []int {
	list := []int{s.PID}
	for _, session := range s.Sessions {
		list = append(list, session.PID)
	}
	return slices.DeleteFunc(list, func(pid int) bool { return pid <= 0 })
}

// Session is a process that serves one client session alone (Open).
type Session struct {
	Handle string    `json:"handle"`
	State  State     `json:"state"`
	Since  time.Time `json:"since"`         // of State
	PID    int       `json:"pid,omitempty"` // of the launcher
	UID    int       `json:"uid"`           // of the sandboxed process, on the host
}

// Diagnostic is one mistake in one file.
type Diagnostic struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"` // "error" or "warning"
	Summary  string `json:"summary"`
	Detail   string `json:"detail,omitempty"`
	Server   string `json:"server,omitempty"` // that the file declares, as far as that is known
	Text     string `json:"text"`             // as hcl.NewDiagnosticTextWriter prints it, with the source line
}
