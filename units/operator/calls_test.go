package operator

import "testing"

// A word that is no state is none that may run.
func TestState(t *testing.T) {
	for s := Denied; s <= Expired; s++ {
		text, err := s.MarshalText()
		read := Approved
		if err == nil {
			err = read.UnmarshalText(text)
		}
		if err != nil || read != s {
			t.Errorf("%s is read as %v, %v", s, read, err)
		}
	}
	for _, text := range []string{"", "Approved", "perhaps"} {
		if err := new(State).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is a state", text)
		}
	}
}
