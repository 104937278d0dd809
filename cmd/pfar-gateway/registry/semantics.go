package registry

import (
	"encoding/json"
	"fmt"

	"github.com/pfar/pfar/cmd/pfar-gateway/jsonrpc"
)

// semantics says whether a tool reads or writes. The owner's word counts (DIS-09); else a tool reads only if its server
// says that it does and does not also say that it destroys (DIS-05, X-29). Everything else writes (DIS-07): hints come
// from the confined server.
func semantics(annotations []byte, owner string) string {
	if owner == "read" || owner == "write" {
		return owner
	}
	var hints struct {
		ReadOnly    *bool `json:"readOnlyHint"`
		Destructive *bool `json:"destructiveHint"`
	}
	if json.Unmarshal(annotations, &hints) != nil || hints.ReadOnly == nil || !*hints.ReadOnly || hints.Destructive != nil && *hints.Destructive {
		return "write"
	}
	return "read"
}

// Label sets the server and its label in the _meta of a result with these members (DIS-10): what a server says under
// pfar/ is replaced, every other byte stays as it came.
func (u *Upstream) Label(result []byte, ms jsonrpc.Members) []byte {
	edit := ms.Prepend(result, u.mark)
	if i := ms.Index("_meta"); i >= 0 {
		edit = ms.Replace(i, jsonrpc.Amend(ms[i].Raw(), theirs, u.mark[len(`"_meta":{`):len(u.mark)-1]))
	}
	return jsonrpc.Splice(make([]byte, 0, len(result)+len(u.mark)+1), result, edit)
}

// mark is the _meta of a result that has none.
func mark(server, label string) []byte {
	return fmt.Appendf(nil, `"_meta":{"pfar/server":%s,"pfar/label":%s}`, jsonrpc.Quote(server), jsonrpc.Quote(label))
}
