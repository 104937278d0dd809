package registry

import (
	"encoding/json"

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
	added := append([]byte(`"pfar/server":`), jsonrpc.Quote(u.server.Name)...)
	added = append(append(added, `,"pfar/label":`...), jsonrpc.Quote(u.server.Label)...)
	if i := ms.Index("_meta"); i >= 0 {
		have, _ := jsonrpc.Object(ms[i].Raw(), nil)
		return jsonrpc.Splice(nil, result, ms.Replace(i, have.Merge(nil, theirs, added)))
	}
	return jsonrpc.Splice(nil, result, ms.Prepend(result, append([]byte(`"_meta":`), jsonrpc.Members(nil).Merge(nil, theirs, added)...)))
}
