package e2e

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const (
	sharedPage = "5fa7ed00-0000-4000-8000-000000000000" // with another workspace: strangers read it, write into it and comment on it
	ownPages   = "0badcafe-0000-4000-8000-000000000000" // with the number of an agent at the end: nobody but the owner reads it
)

// ownPage is one in which there is what is in the agent's file.
func ownPage(a *agent) string { return ownPages[:len(ownPages)-len(a.notes)] + a.notes }

// workspace is a stand-in for api.notion.com that remembers what strangers get to see.
type workspace struct {
	private string // directory of what is in pages that are not shared
	seen    io.Writer
}

// serveWorkspace answers as Notion does whoever has the token. Its arguments are a directory with what is in private
// pages, and the file to which all that comes to be in a shared one is appended.
func serveWorkspace(certificate string) error {
	pair, err := tls.LoadX509KeyPair(certificate, certificate)
	if err != nil {
		return err
	}
	seen, err := os.OpenFile(os.Args[2], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	l, err := tls.Listen("tcp", ":443", &tls.Config{Certificates: []tls.Certificate{pair}})
	if err != nil {
		return err
	}
	w := workspace{os.Args[1], seen}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+notionSelf, answerSelf)
	mux.HandleFunc("GET /v1/comments", w.comments)
	mux.HandleFunc("GET /v1/pages/{id}/markdown", w.read)
	mux.HandleFunc("POST /v1/comments", w.write)
	mux.HandleFunc("POST /v1/pages", w.write)
	mux.HandleFunc("PATCH /v1/blocks/{id}/children", w.write)
	mux.HandleFunc("PATCH /v1/pages/{id}/markdown", w.write)
	mux.HandleFunc("POST /v1/pages/{id}/move", w.move)
	fmt.Println("ready")
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Header.Get("Authorization") != "Bearer "+notionToken {
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"object":"error","status":401,"code":"unauthorized","message":"API token is invalid."}`)
			return
		}
		mux.ServeHTTP(w, r)
	}))
}

// content is what is in a page.
func (w workspace) content(id string) string {
	if id == sharedPage {
		return plan
	}
	number, err := strconv.Atoi(strings.TrimPrefix(id, ownPages[:24]))
	if err != nil {
		return "nothing: " + err.Error()
	}
	b, err := os.ReadFile(filepath.Join(w.private, fmt.Sprint(number)+".txt"))
	if err != nil {
		return "nothing: " + err.Error()
	}
	return string(b)
}

func (w workspace) comments(out http.ResponseWriter, r *http.Request) {
	comments := []object{}
	if r.FormValue("block_id") == sharedPage {
		comments = []object{{"object": "comment", "id": "1", "rich_text": []object{{"type": "text", "plain_text": plan, "text": object{"content": plan}}}}}
	}
	json.NewEncoder(out).Encode(object{"object": "list", "results": comments, "has_more": false})
}

func (w workspace) read(out http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	json.NewEncoder(out).Encode(object{"object": "page_markdown", "id": id, "markdown": w.content(id), "truncated": false})
}

// parent is where a request puts what it makes or moves.
func parent(body []byte) string {
	var b struct {
		Parent struct {
			Page string `json:"page_id"`
		} `json:"parent"`
	}
	json.Unmarshal(body, &b)
	return b.Parent.Page
}

func (w workspace) write(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && (r.PathValue("id") == sharedPage || parent(body) == sharedPage) {
		_, err = w.seen.Write(append(body, '\n'))
	}
	done(out, err)
}

// move shows whoever reads the one page the other as well.
func (w workspace) move(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && parent(body) == sharedPage {
		_, err = io.WriteString(w.seen, w.content(r.PathValue("id"))+"\n")
	}
	done(out, err)
}

func done(out http.ResponseWriter, err error) {
	if err != nil {
		http.Error(out, err.Error(), http.StatusInternalServerError)
		return
	}
	io.WriteString(out, `{"object":"page","id":"1"}`)
}

// Two servers are of this workspace: wiki as the README declares it, of which the owner says nothing and the shipped
// facts all, and notion as in examples/.
const wiki, notion = "wiki", "notion"

// newHeistStage brings up a stage for heists. Notion belongs to it if that can be.
func newHeistStage(t *testing.T, profile string) *stage {
	t.Helper()
	s := prepareStage(t, profile)
	more := append(s.declareHeistServers(), s.declareConfined()...)
	if os.Getuid() != 0 {
		s.begin() // another network takes root, and the test has run as root
		s.awaitRunning(more...)
		s.acceptHints()
		return s
	}
	_, wrap := startStandIn[struct{}](t, "workspace", []string{notionHost}, s.private, filepath.Join(s.log, "notion"))
	example, err := os.ReadFile(filepath.Join(cmp.Or(os.Getenv(examplesVariable), filepath.Join("..", "..", "examples")), "notion.hcl"))
	check(t, err)
	servers, err := npmServers()
	check(t, err)
	s.write(notion+".hcl", strings.ReplaceAll(string(example), "${servers}", servers))
	s.write(wiki+".hcl", fmt.Sprintf(`allowed_domains = [%q]
server {
  command = "node"
  args    = [%q]
}
auth = { NOTION_TOKEN = { secret = "vault:notion_token", deliver = "broker" } }
`, notionHost, npm(t, "@notionhq/notion-mcp-server/bin/cli.mjs")))
	s.begin(wrap...)
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = within(s.cmd.Process.Pid, func() (err error) {
			c, err = new(net.Dialer).DialContext(ctx, network, address)
			return err
		})
		return c, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport}
	s.keep("set", "notion_token", notionToken)
	s.awaitRunning(append(more, notion, wiki)...)
	s.acceptHints()
	return s
}

// notionHeists are those for which Notion holds what the stranger has written, what is private, or what the stranger
// reads.
func notionHeists() (all []heist) {
	if os.Getuid() != 0 {
		return nil
	}
	for _, server := range []string{notion, wiki} {
		all = append(all, heistsWith(server)...)
	}
	return all
}

// heistsWith are those with one of the two servers.
func heistsWith(server string) []heist {
	call := func(a *agent, tool string, arguments object) { a.call(server+"__API-"+tool, arguments) }
	comment := func(_ *stage, a *agent) { call(a, "retrieve-a-comment", object{"block_id": sharedPage}) }
	page := func(_ *stage, a *agent) { call(a, "retrieve-page-markdown", object{"page_id": sharedPage}) }
	private := func(_ *stage, a *agent) { call(a, "retrieve-page-markdown", object{"page_id": ownPage(a)}) }
	shared := object{"type": "page_id", "page_id": sharedPage}
	rich := func(text string) []object { return []object{{"text": object{"content": text}}} }
	toComment := func(_ *stage, a *agent, data string) {
		call(a, "create-a-comment", object{"parent": shared, "rich_text": rich(data)})
	}
	toPage := func(_ *stage, a *agent, data string) {
		call(a, "post-page", object{"parent": shared, "properties": object{"title": object{"title": rich(data)}}})
	}
	toBlock := func(_ *stage, a *agent, data string) {
		call(a, "patch-block-children", object{"block_id": sharedPage, "children": []object{{"paragraph": object{"rich_text": rich(data)}}}})
	}
	toMarkdown := func(_ *stage, a *agent, data string) {
		call(a, "update-page-markdown", object{"page_id": sharedPage, "type": "replace_content", "replace_content": object{"new_str": data}})
	}
	moved := func(_ *stage, a *agent, _ string) {
		call(a, "move-page", object{"page_id": ownPage(a), "parent": shared})
	}
	encode := encodings()
	all := []heist{
		{name: "private page by mail", read: private},
		{name: "private page by the tracker's comment", read: private, leave: ways()["comment"]},
		{name: "private page into a shared one", read: private, leave: toPage},
		{name: "comment has file mailed", arrive: comment},
		{name: "page has file mailed, protocol of 2026", arrive: page, modern: true},
		{name: "comment has private page mailed", arrive: comment, read: private},
		{name: "page has private page searched for", arrive: page, read: private, leave: ways()["search"]},
		{name: "comment has private page commented", arrive: comment, read: private, leave: toComment},
		{name: "page has private page shared", arrive: page, read: private, leave: toPage},
		{name: "page has private page moved", arrive: page, read: private, leave: moved},
		{name: "comment has file commented", arrive: comment, leave: toComment},
		{name: "file into page, protocol of 2026", modern: true, leave: toPage},
		{name: "file into block", leave: toBlock},
		{name: "file into markdown", leave: toMarkdown},
		{name: "file into comment as base64", leave: toComment, encode: encode["base64"]},
		{name: "file into page as hexadecimal", leave: toPage, encode: encode["hexadecimal"]},
		{name: "private page into block as base64", arrive: page, read: private, leave: toBlock, encode: encode["base64"]},
	}
	for i := range all {
		all[i].name = server + ": " + all[i].name
	}
	return all
}
