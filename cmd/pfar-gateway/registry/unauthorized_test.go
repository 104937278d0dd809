package registry

import (
	"errors"
	"fmt"
	"testing"

	"github.com/pfar/pfar/units/jsonrpc"
)

func TestUnauthorized(t *testing.T) {
	for text, want := range map[string]bool{
		`{"code":1,"message":"m","data":{"pfar/error":{"class":"unauthorized"}}}`: true,
		`{"code":1,"message":"m","data":{"pfar/error":{"class":"forbidden"}}}`:    false,
		`{"code":1,"message":"unauthorized","data":"unauthorized"}`:               false,
		`{"code":1,"message":"m"}`: false,
		``:                         false,
	} {
		if got := unauthorized(fmt.Errorf("a step: %w", &jsonrpc.Error{Raw: []byte(text)})); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if unauthorized(errors.New("unauthorized")) {
		t.Error("any error is one")
	}
}
