package hub

import (
	"fmt"
	"slices"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/units/jsonrpc"
)

// Subject says what a server's notification is about. It is read once for all clients.
type Subject struct {
	Level       int
	uri         string
	elicitation string
}

// SubjectOf reads the parameters of a notification.
func SubjectOf(method string, params []byte) (about Subject) {
	if method == "" {
		return about
	}
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		return about
	}
	level, _ := jsonrpc.String(ms.Get("level"))
	about.Level = Severity(level)
	about.uri, _ = jsonrpc.String(ms.Get("uri"))
	about.elicitation, _ = jsonrpc.String(ms.Get("elicitationId"))
	return about
}

// only returns the parameters that clients have use for.
func (about Subject) only(method string, params []byte) []byte {
	switch method {
	case mcp.MethodNotificationResourceUpdated:
		return fmt.Appendf(nil, `{"uri":%s}`, jsonrpc.Quote(about.uri))
	case string(mcp.MethodNotificationElicitationComplete):
		return fmt.Appendf(nil, `{"elicitationId":%s}`, jsonrpc.Quote(about.elicitation))
	}
	return params
}

// Severity numbers the levels of RFC 5424 from 1, debug. It returns -1 for any other word, 0 for none.
func Severity(level string) int { return slices.Index(Levels[:], level) }

// Levels are those of RFC 5424 by their number.
var Levels = [...]string{"", "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// tagged marks the parameters of a notification with the request that asked for it.
func tagged(params, id []byte) []byte {
	mark := append([]byte(`"`+mcp.MetaKeySubscriptionID+`":`), id...)
	keep := func(name []byte) bool { return string(name) != mcp.MetaKeySubscriptionID }
	ms, err := jsonrpc.Object(params, nil)
	if err != nil {
		params, ms = []byte("{}"), nil
	}
	if i := ms.Index("_meta"); i >= 0 {
		meta, _ := jsonrpc.Object(ms[i].Raw(), nil)
		return jsonrpc.Splice(nil, params, ms.Replace(i, meta.Merge(nil, keep, mark)))
	}
	meta := append([]byte(`"_meta":`), jsonrpc.Members(nil).Merge(nil, keep, mark)...)
	return jsonrpc.Splice(nil, params, ms.Prepend(params, meta))
}
