// Package entries reads what the journal has of pfar's units: a server and a number of lines in, the lines of its log
// out, as journalctl(1) finds them.
package entries

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/pfar/pfar/units"
)

// Query says which entries are wanted: those that units wrote, and that systemd wrote of them.
type Query struct {
	Units  []string
	Server string // whose entries are wanted; "": those of all servers
	User   int    // whose units they are; 0: the machine's
	Lines  int    // how many of the last ones; negative: all
	Follow bool   // with those that are written later
}

// Of lists the units whose entries are a server's log, those for one session each included.
func Of(server string) []string {
	sessions := units.Instance(server, "*")
	return []string{
		"pfar-mcp@" + server + ".service", "pfar-egress@" + server + ".service",
		"pfar-mcp@" + sessions + ".service", "pfar-egress@" + sessions + ".service",
	}
}

// Arguments are those of journalctl.
func (q Query) Arguments() []string {
	lines := "all"
	if q.Lines >= 0 {
		lines = strconv.Itoa(q.Lines)
	}
	args := []string{
		"--output=json", "--output-fields=MESSAGE,PFAR_SERVER,SYSLOG_IDENTIFIER", "--all", "--no-pager", "--lines=" + lines,
	}
	if q.Follow {
		args = append(args, "--follow")
	}
	return append(args, q.matches()...)
}

// matches are the arguments by which journalctl finds the units. For an ordinary user the journal takes no process's
// word for its unit, and does not find it out of one that has ended: there it is the name that each entry of ours has.
func (q Query) matches() (args []string) {
	if q.User == 0 {
		for _, u := range q.Units {
			args = append(args, "--unit="+u)
		}
		return args
	}
	match := func(field, value string) {
		if len(args) > 0 {
			args = append(args, "+")
		}
		args = append(args, field+"="+value, "_UID="+strconv.Itoa(q.User))
	}
	if q.Server != "" {
		match("PFAR_SERVER", q.Server)
	}
	for _, u := range q.Units {
		if !strings.Contains(u, "*") {
			match("_SYSTEMD_USER_UNIT", u)
			match("USER_UNIT", u)
		}
	}
	return args
}

// Wants reports whether an entry is of the server, or of systemd. Sessions of two servers whose names begin alike have
// units that do.
func (q Query) Wants(e Entry) bool {
	s := Text(e.Server)
	return q.Server == "" || s == "" || s == q.Server
}

// Entry is one of journalctl's, whose fields are strings or, where they are not UTF-8, numbers of bytes.
type Entry struct {
	Time    string `json:"__REALTIME_TIMESTAMP"` // microseconds since 1970
	Message any    `json:"MESSAGE"`
	Server  any    `json:"PFAR_SERVER"`
	By      any    `json:"SYSLOG_IDENTIFIER"`
}

// Whose is the name of the server that the entry is of. Entries without one are of systemd.
func (e Entry) Whose() string { return cmp.Or(Text(e.Server), "systemd") }

// Write writes the entry as lines of a log.
func (e Entry) Write(w io.Writer) error {
	stamp := ""
	if us, err := strconv.ParseInt(e.Time, 10, 64); err == nil {
		stamp = time.UnixMicro(us).UTC().Format(units.LogTime)
	}
	if strings.HasPrefix(Text(e.By), "pfar-mcp@") { // what pfar-sandbox says of a server has its own name
		stamp += units.ServerMark
	}
	for line := range strings.SplitSeq(Text(e.Message), "\n") {
		if _, err := io.WriteString(w, stamp+line+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// Text is the value of a field.
func Text(field any) string {
	switch v := field.(type) {
	case string:
		return v
	case []any:
		var b []byte
		for _, n := range v {
			f, ok := n.(float64)
			if !ok || f < 0 || f > 255 {
				return ""
			}
			b = append(b, byte(f))
		}
		return string(b)
	}
	return ""
}
