package flowdesk_test

import (
	"testing"

	"github.com/pfar/pfar/cmd/pfar-gateway/label"
	"github.com/pfar/pfar/policies/gate"
	"github.com/pfar/pfar/policies/inspector"
	"github.com/pfar/pfar/units/flows"
)

// TestWordsAreRead: what a model says of a result counts as read with the label of the run, also in a session that was
// reset since and has that label by something else. A person who acts for the client reads it for no model.
func TestWordsAreRead(t *testing.T) {
	for name, who := range map[string]asking{"a client": laptop, "a person": acting} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			m := b.declares(t, false)
			trusted := gate.Model{Audience: gate.Secret, Answers: true}
			trusted.Name, trusted.URL, trusted.External.Model = "main", "https://a.example.com/", "m"
			trusted.Chat = &inspector.Chat{}
			var err error
			if trusted.External, err = trusted.Declared(); err != nil {
				t.Fatal(err)
			}
			b.models.Learn([]gate.Model{trusted})
			b.server(t, "diary", diary, "read")
			b.server(t, "notes", diary, "read")
			s := b.run(t, laptop, `diary.read --says "`+figures+`"`).until(flows.Done)
			b.gate.Reads.Forget("laptop", label.Default)
			if err := b.gate.Sessions.Reset("laptop", label.Default, "ann"); err != nil {
				t.Fatal(err)
			}
			b.run(t, laptop, `notes.read --says "something of the same label"`).until(flows.Done)
			if b.carries() {
				t.Fatal("the session knows the figures before it has read them")
			}
			m.say("It says: " + figures)
			a := b.order(t, who, flows.Order{Verb: flows.Word, Run: s.ID, Words: "what?"})
			if a.Worded == nil || a.Worded.Text == "" {
				t.Fatalf("%+v", a.Worded)
			}
			if got, want := b.carries(), who == laptop; got != want {
				t.Errorf("the session knows that it has read the figures: %t, want %t", got, want)
			}
		})
	}
}
