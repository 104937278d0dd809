package session

import (
	"testing"

	"github.com/pfar/pfar/units/jsonrpc"
)

// TestAnswered: a question is answered once, by a response that the protocol has, and fails by any other.
func TestAnswered(t *testing.T) {
	for response, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`:                            `{"a":1}`,
		`{"jsonrpc":"2.0","id":1,"result":[]}`:                                 "failed",
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"no"}}`:           "failed",
		`{"jsonrpc":"2.0","id":1,"error":{}}`:                                  "failed",
		`{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":""}}`: "failed",
		`{"jsonrpc":"2.0","id":2,"result":{"a":1}}`:                            "",
	} {
		got := ""
		q := Questions{open: make(map[string]Question)}
		q.Enter(Question{
			Answer: func(result []byte) { got += string(result) },
			Fail:   func(*jsonrpc.Error) { got += "failed" },
		})
		m, err := jsonrpc.Parse([]byte(response))
		if err != nil {
			t.Fatal(err)
		}
		q.Answered(m)
		q.Answered(m)
		if got != want {
			t.Errorf("%s: %q, want %q", response, got, want)
		}
	}
}

// TestQuestionsEnd: there is room for so many questions, and those that are open when the session ends fail.
func TestQuestionsEnd(t *testing.T) {
	q, failed := Questions{open: make(map[string]Question)}, 0
	for range MaxQuestions {
		if q.Enter(Question{Fail: func(*jsonrpc.Error) { failed++ }}) == nil {
			t.Fatal("no room")
		}
	}
	if q.Enter(Question{}) != nil {
		t.Error("there is always room")
	}
	if _, open := q.Drop([]byte("1")); !open {
		t.Error("it is not open")
	}
	if q.fail(nil); failed != MaxQuestions-1 {
		t.Errorf("%d fail", failed)
	}
}
