package registry

import (
	"regexp"
	"time"

	"github.com/mark3labs/mcp-go/mcp"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// unreadGrace is how long a call goes on to wait once a line has come that looks like its answer and cannot be read: it
// may have been noise.
const unreadGrace = time.Second

// mayBeID finds what may be the id of the request that a line answers, in whatever is left of it.
var mayBeID = regexp.MustCompile(`"id"\s*:\s*([0-9]+)`)

// maxUnread bounds where an id is looked for, in bytes.
const maxUnread = 64 << 10

// unreadable has the call that a line seems to answer end soon, for no other answer is likely to come.
func (u *Upstream) unreadable(line []byte, why string) {
	for _, m := range mayBeID.FindAllSubmatch(line[:min(len(line), maxUnread)], 8) {
		id, ok := ourID(m[1])
		u.mu.Lock()
		w := u.waiting[id]
		if ok && w != nil && w.begun == nil && w.unread == "" {
			w.unread = why
			w.timer.Reset(min(unreadGrace, u.timeout()))
		}
		u.mu.Unlock()
		if ok && w != nil {
			return
		}
	}
}

// unread is the error of a call whose answer could not be read; nil if none has come.
func (u *Upstream) unread(w *waiting, id int64) error {
	u.mu.Lock()
	why := w.unread
	u.mu.Unlock()
	if why == "" {
		return nil
	}
	u.abandon(id, "the answer could not be read")
	return jsonrpc.Errorf(mcp.INTERNAL_ERROR, "server %q answered %s with a line that cannot be read: %s", u.Server().Name, w.call.Method, why)
}
