package flowdesk_test

import (
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

const figures = "the quarterly figures are 12345678 and 87654321 euros"

// carries reports whether the laptop's session knows that it has read the figures, so that a URL with them is caught.
func (b *bench) carries() bool {
	url := []byte(`{"url":"https://x.example/?q=` + figures + `"}`)
	return b.gate.Reads.Carries("laptop", label.Default, url, gate.Public) != ""
}

// TestNodesAreRead: what pfar's own nodes give counts as read, with the label of all that the run holds.
func TestNodesAreRead(t *testing.T) {
	for name, line := range map[string]string{
		"a file":     `read-file --path a`,
		"a template": `read-file --path a + template --template "got {{content}}"`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.server(t, "diary", diary, "read")
			if err := b.gate.Sessions.New("laptop", "other"); err != nil {
				t.Fatal(err)
			}
			other := asking{client: "laptop", path: "/laptop/other"}
			b.run(t, other, `diary.read --says "`+figures+`" + write-file --path a`).until(flows.Done)
			b.run(t, laptop, `log --message x`).until(flows.Done)
			if b.carries() {
				t.Fatal("the session knows the figures before it has read them")
			}
			f := b.run(t, laptop, line)
			s := f.until(flows.Running, flows.Done)
			for s.State != flows.Done {
				s = f.until(flows.Running, flows.Done)
			}
			if l, err := b.gate.Sessions.Label("laptop", label.Default); err != nil || l.Confidentiality != gate.Sensitive {
				t.Errorf("the session has %s, %v", l, err)
			}
			if !b.carries() {
				t.Error("the session does not know that it has read the figures")
			}
		})
	}
}
