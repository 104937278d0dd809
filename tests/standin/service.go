package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/pfar/pfar/tests/stdio"
)

// tool is one of a service's.
type tool struct {
	name, about   string
	input, output string // members of the schemas: {"query":{...}}
	required      string // names, as JSON
	reads         bool
	result        string // as JSON
}

// services are the tools of services that many flows name.
var services = map[string][]tool{
	"github": {
		{
			"search_code", "Search code in repositories",
			`"query":{"type":"string","description":"search query"},
			"language":{"type":"string","description":"programming language"},
			"max_results":{"type":"integer","default":10,"description":"most results to return"}`,
			`"search_results":{"type":"array","items":{"type":"object"},"description":"code that was found"}`,
			`["query"]`, true, `{"search_results":[{"path":"auth.py","line":7,"text":"TODO: check the token"}]}`,
		},
		{
			"search_repositories", "Search repositories",
			`"query":{"type":"string"},"language":{"type":"string"},"sort_by":{"type":"string","default":"stars"}`,
			`"repositories":{"type":"array","items":{"type":"string"}}`, `["query"]`, true, `{"repositories":["acme/api"]}`,
		},
		{
			"get_repo", "Get information on a repository", `"repo":{"type":"string"}`, `"repository":{"type":"object"}`,
			`["repo"]`, true, `{"repository":{"name":"acme/api","stars":3}}`,
		},
		{
			"create_issue", "Create an issue", `"title":{"type":"string"},"body":{"type":"string"}`,
			`"number":{"type":"integer"}`,
			`["title"]`, false, `{"number":17}`,
		},
	},
	"slack": {{
		"send_message", "Send a message to a channel", `"message":{"type":"string"},"channel":{"type":"string"}`,
		`"message_id":{"type":"string"}`, `["message","channel"]`, false, `{"message_id":"m1"}`,
	}},
	"weather": {{
		"get_weather", "Get the weather at a place",
		`"location":{"type":"string"},"units":{"type":"string","default":"metric"}`,
		`"weather_data":{"type":"object"}`, `["location"]`, true, `{"weather_data":{"temperature":12}}`,
	}},
	"finance": {{
		"get_stock_price", "Get the price of a share", `"symbol":{"type":"string"}`, `"price":{"type":"number"}`,
		`["symbol"]`, true, `{"price":12.5}`,
	}},
	"filesystem": {{
		"list_files", "List the files of a directory", `"path":{"type":"string"}`,
		`"files":{"type":"array","items":{"type":"string"}}`, `["path"]`, true, `{"files":["notes.txt"]}`,
	}},
	"stripe": {{
		"create_customer", "Create a customer", `"description":{"type":"string"}`, `"customer_id":{"type":"string"}`,
		`["description"]`, false, `{"customer_id":"c1"}`,
	}},
}

// service are the tools of one. Each call is appended to a file, "" for none, before it is answered.
func service(name, received string) (all []stdio.Tool) {
	var mu sync.Mutex
	for _, t := range services[name] {
		all = append(all, stdio.Tool{
			Name: t.name, Description: t.about, Reads: t.reads,
			Schema: fmt.Sprintf(`{"type":"object","properties":{%s},"required":%s}`, t.input, t.required),
			Output: fmt.Sprintf(`{"type":"object","properties":{%s}}`, t.output),
			Call: func(arguments json.RawMessage) (string, error) {
				mu.Lock()
				defer mu.Unlock()
				return t.result, note(received, name+" "+t.name+" "+string(arguments))
			},
		})
	}
	return all
}

func note(file, line string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintln(f, line)
	return err
}
