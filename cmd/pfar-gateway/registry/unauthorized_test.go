package registry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pfar/pfar/policies/failure"
	"github.com/pfar/pfar/units/jsonrpc"
)

func TestUnauthorized(t *testing.T) {
	for _, class := range failure.Classes() {
		err := failure.As(class, "s", &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m"}`)})
		if got := unauthorized(fmt.Errorf("a step: %w", err)); got != (class == failure.Unauthorized) {
			t.Errorf("%s: %v", class, got)
		}
	}
	said := &jsonrpc.Error{Raw: []byte(`{"code":1,"message":"m","data":{"pfar/error":{"class":"unauthorized"}}}`)}
	if unauthorized(said) {
		t.Error("what a server says in pfar's name counts")
	}
	if unauthorized(errors.New("unauthorized")) {
		t.Error("any error is one")
	}
}
