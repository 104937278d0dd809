package oauth

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWithoutRefreshToken wants an access token alone to be a set, which is never refreshed and says so.
func TestWithoutRefreshToken(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for _, text := range []string{`{"access_token":"AT-hunter2"}`, `{"access_token":"AT-hunter2","expires_in":3600}`, `{"access_token":"AT-hunter2","token_url":"https://login.example/t","expires_in":3600}`} {
		s, err := Parse([]byte(text), now)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if at := s.RefreshAt(now, 0); !at.IsZero() || !strings.Contains(s.Unrefreshed(), "no refresh_token") {
			t.Errorf("%s is refreshed at %v, %q", text, at, s.Unrefreshed())
		}
		if got := s.Secrets(); !slices.Equal(got, []string{"AT-hunter2"}) { // an empty one would be taken out of every text
			t.Errorf("%s has the secrets %q", text, got)
		}
		b, err := s.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Decode(b); err != nil || again.AccessToken != s.AccessToken || !again.Expiry.Equal(s.Expiry) {
			t.Errorf("%s came back as %+v, %v", text, again, err)
		}
	}
}
