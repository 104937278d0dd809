package flowdesk_test

import (
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/units/flows"
)

// TestResetDoesNotDeclassify: after a reset the owner's declassification of one server's data does not apply to what a
// run holds of another one, though the session has read as secret data of that server by then.
func TestResetDoesNotDeclassify(t *testing.T) {
	for name, reset := range map[string]bool{"without a reset": false, "after a reset": true} {
		b := newBench(t)
		b.declassify(t)
		b.server(t, "bank", diary, "read")
		b.server(t, "notes", diary, "read")
		b.server(t, "mail", public, "look")
		reached, goOn := b.clock(t)
		f := b.run(t, laptop, `bank.read --says BANKDATA + clock.wait --says x + mail.look --says y`)
		b.answer(t, f.until(flows.Waiting).Approval, true)
		<-reached
		if reset {
			if err := b.gate.Sessions.Reset("laptop", label.Default, "ann"); err != nil {
				t.Fatal(err)
			}
			b.gate.Approvals.Forget("laptop", label.Default)
		}
		b.run(t, laptop, `notes.read --says x`).until(flows.Done)
		close(goOn)
		f.until(flows.Done, flows.Waiting)
		r := b.records.of("look")
		if len(r) != 1 || r[0].Decision.Verdict != gate.Ask || len(r[0].Decision.Flows) != 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
