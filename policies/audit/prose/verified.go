package prose

import (
	"fmt"
	"strings"

	"github.com/pfar/pfar/policies/audit"
)

// Verified is what a verification found about one chain, as "pfar audit verify --json" prints it.
type Verified struct {
	audit.Report
	Unsealed bool   `json:"unsealed,omitempty"` // its newest file has no append-only attribute
	Journal  string `json:"journal,omitempty"`  // why the chain was compared with nothing; the same for each chain
}

// What is said of a verification as a whole, and of one without a record.
const (
	Changed     = "records were changed"
	NotRecorded = "nothing has been recorded yet"
)

// Broken reports whether records of the chain were changed, removed, inserted or moved.
func (v Verified) Broken() bool { return len(v.Problems) > 0 || v.More > 0 }

// Word says in one word whether the chain holds.
func (v Verified) Word() string {
	if v.Broken() {
		return "BROKEN"
	}
	return "whole"
}

// Head says how many records the chain has, from which one to which, and at which one it breaks.
func (v Verified) Head() string {
	head := fmt.Sprintf("%s: %d records, %d to %d", v.Chain, v.Records, v.First, v.Last)
	if v.Anchors > 0 {
		head += fmt.Sprintf(", %d compared with the journal", v.Anchors)
	}
	if at := v.breaks(); at > 0 {
		head += fmt.Sprintf(", breaks at record %d", at)
	}
	return head
}

// breaks is the number of the first record with a problem; 0: there is none, or the problem is with no record.
func (v Verified) breaks() (at uint64) {
	for _, p := range v.Problems {
		if p.Seq > 0 && (at == 0 || p.Seq < at) {
			at = p.Seq
		}
	}
	return at
}

// Lines say where the chain is broken, and what else a person should know of it. They quote what the files have.
func (v Verified) Lines() (lines []string) {
	for _, p := range v.Problems {
		lines = append(lines, p.String())
	}
	if v.More > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", v.More))
	}
	for _, n := range v.Notes {
		lines = append(lines, "note: "+n)
	}
	if v.MoreNotes > 0 {
		lines = append(lines, fmt.Sprintf("note: and %d more", v.MoreNotes))
	}
	if n := len(v.Unmatched); n > 0 {
		calls := "1 call"
		if n > 1 {
			calls = fmt.Sprintf("%d calls", n)
		}
		lines = append(lines, fmt.Sprintf("note: %s not closed: under way, or their gateway was killed: %s", calls,
			lastIDs(v.Unmatched)))
	}
	return lines
}

// lastIDs are the ids of the last calls of a list.
func lastIDs(list []audit.Unmatched) string {
	const most = 5
	var ids []string
	for _, u := range list[max(0, len(list)-most):] {
		ids = append(ids, u.ID)
	}
	if len(list) > most {
		return "…, " + strings.Join(ids, ", ")
	}
	return strings.Join(ids, ", ")
}

// Uncompared says why the chains were compared with nothing; "": they were compared.
func Uncompared(list []Verified) string {
	if len(list) == 0 || list[0].Journal == "" {
		return ""
	}
	return "note: " + list[0].Journal
}
