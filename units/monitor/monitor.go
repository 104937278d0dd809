// Package monitor is an egress bridge's socket for whoever may watch it: its connections, open, past and refused, as
// they come.
package monitor

import (
	"strings"
	"time"
)

// Path is how a connection came to the bridge.
type Path string

const (
	Proxy    Path = "proxy"    // the explicit proxy on 127.0.0.1:9876
	Redirect Path = "redirect" // sent there by the namespace's ruleset
	Resolver Path = "resolver" // a name was asked for, and refused
	Kernel   Path = "kernel"   // the namespace's ruleset rejected a packet
)

// Connection is one connection, or one attempt at one. Every text is escaped already.
type Connection struct {
	ID       uint64    `json:"id"`   // of this bridge process; the same in each message about the connection
	Time     time.Time `json:"time"` // of its beginning
	Path     Path      `json:"path"`
	Protocol string    `json:"protocol,omitempty"` // "tls", "http", "tcp", "udp", ...
	Host     string    `json:"host"`               // "host:port", or a name alone of Resolver; "" if the request had none
	Address  string    `json:"address,omitempty"`  // outside, that it is connected to
	Verdict  string    `json:"verdict"`            // "allow" or "deny"
	Reason   string    `json:"reason"`             // of egress.Decision, or of a refusal
	Detail   string    `json:"detail,omitempty"`   // what else the owner has to know of a refusal
	Rule     string    `json:"rule,omitempty"`     // entry of allowed_domains
	Sent     int64     `json:"sent"`               // bytes, by the server
	Received int64     `json:"received"`           // bytes
	Open     bool      `json:"open"`
	Brokered bool      `json:"brokered,omitempty"` // opened, so that secrets are put into its requests
	Seconds  float64   `json:"seconds"`            // that it has been open, or was
	Count    int       `json:"count,omitempty"`    // of equal refusals in a row, if more than one; Time is the first one's
	Last     time.Time `json:"last,omitzero"`      // of the last of Count
}

// Via says how the connection came to the bridge, in words.
func (c Connection) Via() string { return strings.TrimSpace(string(c.Path) + " " + c.Protocol) }

// Message is one line of the stream: a connection that began, changed or ended, the news that all that was there when
// the stream began has been sent, or how many past connections were dropped before this watcher had read of them.
type Message struct {
	Connection *Connection `json:"connection,omitempty"`
	Synced     bool        `json:"synced,omitempty"`
	Lost       int         `json:"lost,omitempty"`
}
