package main

import (
	"encoding/json"
	"testing"
)

// TestToolDefinitionIsKeptWhole: what a listing says beyond what this program reads is printed all the same.
func TestToolDefinitionIsKeptWhole(t *testing.T) {
	const sent = `{"_meta":{"pfar/server":"s","pfar/tool":"t","pfar/semantics":"read"},"name":"s__t","inputSchema":{},"outputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},"execution":{"x":1.50}}`
	var read tool
	if err := json.Unmarshal([]byte(sent), &read); err != nil || read.id() != "s.t" {
		t.Fatalf("%q, %v", read.id(), err)
	}
	if got, err := json.Marshal([]tool{read}); err != nil || string(got) != "["+sent+"]" {
		t.Errorf("got  %s (%v)\nwant [%s]", got, err, sent)
	}
}
