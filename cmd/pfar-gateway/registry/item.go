package registry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/yosida95/uritemplate/v3"

	"github.com/pfar/pfar/cmd/pfar-gateway/fenced"
	"github.com/pfar/pfar/policies/fence"
	"github.com/pfar/pfar/policies/inspect"
	"github.com/pfar/pfar/policies/schema"
	"github.com/pfar/pfar/units/jsonrpc"
)

// Item is one tool, prompt, resource or resource template as its server defined it.
type Item struct {
	Name     string    // or the URI, or its template
	Raw      []byte    // the whole object as it came
	Reads    bool      // a tool that changes nothing
	Pin      string    // digest of the definition as the owner has accepted it; "": nobody has, or it is of a kind that nobody accepts
	Reviewed bool      // a person has accepted it, and may have looked at what it claims
	Pure     bool      // and says that it only reads, and that the same arguments have the same result
	Shipped  bool      // pfar ships its digest: its makers have read it
	shown    string    // the owner's name for a tool; "": the server's
	Headers  *mcp.Tool // a tool that wants some arguments repeated in headers of the request (SEP-2243); nil: none
	template *uritemplate.Template
	schemas  *schemas // of a tool
}

// Strange reports whether nobody has reviewed what a client is shown of it: then that is a stranger's text.
func (i Item) Strange() bool { return !i.Reviewed && !i.Shipped }

// Standing is who has accepted the definition, in a word: a person, pfar's makers, or neither.
func (i Item) Standing() string {
	switch {
	case i.Reviewed:
		return "reviewed"
	case i.Shipped:
		return "shipped"
	}
	return "unreviewed"
}

// served is the name that clients see, without the server's.
func (i Item) served() string {
	if i.shown != "" {
		return i.shown
	}
	return i.Name
}

// describe puts the owner's description in the place of the server's.
func (i *Item) describe(text string) {
	ms, err := jsonrpc.Object(i.Raw, nil)
	if err != nil {
		return // cannot be: newItem has read it
	}
	edit := ms.Prepend(i.Raw, append([]byte(`"description":`), jsonrpc.Quote(text)...))
	if at := ms.Index("description"); at >= 0 {
		edit = ms.Replace(at, jsonrpc.Quote(text))
	}
	i.Raw = jsonrpc.Splice(nil, i.Raw, edit)
}

// schemas are a tool's, compiled when they are first needed: most tools of most servers are never called.
type schemas struct {
	once   sync.Once
	input  *schema.Schema
	output *schema.Schema // nil: there is none
	typed  *schema.Typed  // output, if no text fits into what conforms to it; else nil
}

func (i Item) compiled() *schemas {
	i.schemas.once.Do(func() {
		i.schemas.input, _ = schema.Compile(i.Member("inputSchema")) // newItem has compiled them
		if raw := i.Member("outputSchema"); raw != nil {
			i.schemas.output, _ = schema.Compile(raw)
			if i.schemas.output != nil {
				i.schemas.typed, _ = schema.ReadTyped(raw)
			}
		}
	})
	return i.schemas
}

// CheckArguments reports what the schema of a tool finds wrong with a call's arguments, nil for nothing.
func (i Item) CheckArguments(raw []byte) *schema.Violation {
	if len(raw) == 0 || string(raw) == "null" {
		raw = []byte("{}")
	}
	return i.compiled().input.Check(raw)
}

// FreeText reports whether a call's arguments hold text that the tool's schema leaves to whoever made it.
func (i Item) FreeText(raw []byte) bool {
	if len(raw) == 0 || string(raw) == "null" {
		return false
	}
	return i.compiled().input.FreeText(raw)
}

// Extracts reports whether a tool's results are typed values without free text, by its outputSchema. Each result has
// still to be one: see Extract.
func (i Item) Extracts() bool { return i.compiled().typed != nil }

// Extract returns the structuredContent of a result with these members, which CheckResult found nothing wrong with,
// written anew so that there is nothing in it but typed values. An error says why it is more than that; no word in it
// is the server's.
func (i Item) Extract(ms jsonrpc.Members) ([]byte, error) {
	typed, content := i.compiled().typed, ms.Get("structuredContent")
	kind, failed := string(ms.Get("resultType")), string(ms.Get("isError"))
	switch {
	case typed == nil:
		return nil, errors.New("the tool's outputSchema has room for text")
	case failed != "" && failed != "false":
		return nil, errors.New("the result is an error")
	case kind != "" && kind != `"complete"`:
		return nil, errors.New("the result is not complete")
	case content == nil:
		return nil, errors.New("the result has no structuredContent")
	}
	b, err := typed.Extract(content)
	if err != nil {
		return nil, fmt.Errorf("structuredContent: %w", err)
	}
	return b, nil
}

// CheckResult reports what is wrong with the members of a tool's result: structuredContent that does not conform to the
// schema that the tool gives for it, or is missing.
func (i Item) CheckResult(ms jsonrpc.Members) *schema.Violation {
	output := i.compiled().output
	if output == nil || string(ms.Get("isError")) == "true" {
		return nil
	}
	content := ms.Get("structuredContent")
	if content == nil {
		return &schema.Violation{Text: "structuredContent is missing, and the tool has an outputSchema"}
	}
	return output.Check(content)
}

// CheckStructured reports in what structuredContent does not conform to the schema that the tool gives for it, if it
// gives one.
func (i Item) CheckStructured(content []byte) *schema.Violation {
	if output := i.compiled().output; output != nil {
		return output.Check(content)
	}
	return nil
}

// Member returns a member of the definition as it came, nil if there is none: "annotations", "inputSchema".
func (i Item) Member(name string) []byte {
	ms, err := jsonrpc.Object(i.Raw, nil)
	if err != nil {
		return nil
	}
	return ms.Get(name)
}

// servable is what a name may look like (MCP 2025-11-25 server/tools): it is shown to models and people, and joined
// with others.
var servable = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,128}$`)

const maxURI = 2048

// newItem reads a definition. Where it errs, the item has the name if there is one, for the log.
func newItem(k Kind, raw []byte, limits *Limits) (Item, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) > limits.Item {
		return Item{}, fmt.Errorf("the definition has %d bytes, at most %d are served", len(raw), limits.Item)
	}
	if depth := jsonrpc.Depth(raw); depth > limits.ItemDepth {
		return Item{}, fmt.Errorf("the definition nests %d levels deep, at most %d are served", depth, limits.ItemDepth)
	}
	ms, err := jsonrpc.Object(raw, nil)
	if err != nil {
		return Item{}, err
	}
	if err := ms.LookAlike("name", "inputSchema", "outputSchema", "uri", "uriTemplate", "mimeType", "_meta", "icons",
		"annotations"); err != nil {
		return Item{}, err
	}
	key := k.form().key
	item := Item{Raw: bytes.Clone(raw), schemas: new(schemas)} // not the whole page
	if item.Name, err = jsonrpc.String(ms.Get(key)); err != nil {
		return item, fmt.Errorf("the %s is %w", key, err)
	}
	if meta := ms.Get("_meta"); meta != nil {
		if _, err := jsonrpc.Object(meta, nil); err != nil {
			return item, fmt.Errorf("reading its _meta: %w", err)
		}
	}
	switch k {
	case Tools:
		if forPagesAlone(ms.Get("_meta")) {
			return item, errors.New("the tool is for a page of an MCP App alone, and pages are not served")
		}
		if err = checkTool(item.Name, ms); err == nil && bytes.Contains(ms.Get("inputSchema"), []byte("x-mcp-header")) {
			item.Headers = &mcp.Tool{Name: item.Name, RawInputSchema: ms.Get("inputSchema")}
			err = mcp.ValidateParamHeaderAnnotations(item.Headers)
		}
		return item, err
	case Prompts:
		return item, checkName(item.Name)
	case Resources:
		err = checkURI(item.Name)
	default:
		item.template, err = template(item.Name)
	}
	mime, _ := jsonrpc.String(ms.Get("mimeType"))
	if mime, _ = fence.Clean(mime); err == nil && fenced.IsPageType(mime) {
		err = errPage
	}
	if err == nil {
		err = checkWords(raw)
	}
	return item, err
}

// forPagesAlone reports whether members of _meta say that no model is to see the tool, but the pages of its server.
func forPagesAlone(meta []byte) bool {
	var is struct {
		UI struct {
			Visibility []string `json:"visibility"`
		} `json:"ui"`
		Visibility string `json:"openai/visibility"`
	}
	_ = json.Unmarshal(meta, &is) // what is of another type says nothing to clients either
	return is.Visibility == "private" || is.UI.Visibility != nil && !slices.Contains(is.UI.Visibility, "model")
}

// checkWords refuses what inspectors find suspicious in a definition that no owner is asked to accept, and that
// strangers may have named.
func checkWords(raw []byte) error {
	if kind := inspect.Suspicion(raw, nil); kind != "" {
		return fmt.Errorf("inspectors find the words suspicious: %s", kind)
	}
	return nil
}

func checkName(name string) error {
	if !servable.MatchString(name) {
		return fmt.Errorf("the name does not match %s", servable)
	}
	return nil
}

func checkTool(name string, ms jsonrpc.Members) error {
	if err := checkName(name); err != nil {
		return err
	}
	for _, member := range [...]string{"inputSchema", "outputSchema", "annotations"} {
		raw := ms.Get(member)
		switch {
		case raw == nil && member != "inputSchema":
			continue
		case raw == nil || raw[0] != '{':
			return fmt.Errorf("the %s is not an object", member)
		}
	}
	for _, member := range [...]string{"inputSchema", "outputSchema"} {
		raw := ms.Get(member)
		if raw == nil {
			continue
		}
		if _, err := schema.Compile(raw); err != nil {
			return fmt.Errorf("the %s: %w", member, err)
		}
	}
	return nil
}

var errPage = errors.New("the resource is a page of an MCP App, which a client would run outside of the sandbox")

func checkURI(uri string) error {
	if len(uri) > maxURI {
		return fmt.Errorf("the uri has %d bytes, at most %d are served", len(uri), maxURI)
	}
	if strings.ContainsFunc(uri, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return errors.New("the uri has spaces or control characters")
	}
	if !absolute.MatchString(uri) {
		return errors.New("the uri is not an absolute one")
	}
	if fenced.IsPage(uri) {
		return errPage
	}
	return nil
}

// absolute is a URI with a scheme (RFC 3986 section 3); nobody but its server reads the rest.
var absolute = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// hasScheme reports whether a resource or template says itself which scheme its URIs have: {+any} names those of every
// server.
func (i Item) hasScheme() bool { return absolute.MatchString(i.Name) }

func template(text string) (*uritemplate.Template, error) {
	if len(text) > maxURI/2 {
		return nil, fmt.Errorf("the uriTemplate has %d bytes, at most %d are served", len(text), maxURI/2)
	}
	if fenced.IsPage(text) {
		return nil, errPage
	}
	t, err := uritemplate.New(text)
	if err != nil {
		return nil, fmt.Errorf("reading its uriTemplate: %w", err)
	}
	return t, nil
}
