package policies

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// recorded is where the lists of tools of real packages are.
const recorded = "../cmd/pfar-gateway/schema/testdata/"

// packages are the tools of those lists by the facts that they have to have, and by the tier.
var packages = map[string]map[string]string{
	"notion-mcp-server": {
		"internal raw, to internal, none": `API-get-user API-get-users API-get-self API-post-search API-get-block-children
			API-retrieve-a-block API-retrieve-a-page API-retrieve-a-page-property API-retrieve-a-comment API-query-data-source
			API-retrieve-a-data-source API-list-data-source-templates API-retrieve-a-database API-retrieve-page-markdown`,
		"internal raw, to internal, reversible": `API-delete-a-block`,
		"internal raw, to internal, irreversible": `API-patch-block-children API-update-a-block API-patch-page API-post-page
			API-create-a-comment API-update-a-data-source API-create-a-data-source API-move-page API-update-page-markdown`,
	},
	"server-github": {
		"internal raw, to internal, none": `search_repositories get_file_contents list_commits list_issues search_code search_issues
			search_users get_issue get_pull_request list_pull_requests get_pull_request_files get_pull_request_status
			get_pull_request_comments get_pull_request_reviews`,
		"internal raw, to public, reversible": `create_branch fork_repository update_pull_request_branch`,
		"internal raw, to public, irreversible": `create_or_update_file create_repository push_files create_issue create_pull_request
			update_issue add_issue_comment create_pull_request_review merge_pull_request`,
	},
	"server-filesystem": {
		"sensitive clean, to sensitive, none": `read_file read_text_file read_media_file read_multiple_files list_directory
			list_directory_with_sizes directory_tree search_files get_file_info list_allowed_directories`,
		"sensitive clean, to sensitive, reversible":   `edit_file create_directory move_file`,
		"sensitive clean, to sensitive, irreversible": `write_file`,
	},
	"server-memory": {
		"sensitive clean, to sensitive, none":         `read_graph search_nodes open_nodes`,
		"sensitive clean, to sensitive, reversible":   `create_entities create_relations add_observations`,
		"sensitive clean, to sensitive, irreversible": `delete_entities delete_observations delete_relations`,
	},
	"server-everything": { // of which no facts are shipped
		"sensitive raw, to public, irreversible": `echo get-annotated-message get-env get-resource-links get-resource-reference
			get-structured-content get-sum get-tiny-image gzip-file-as-resource toggle-simulated-logging toggle-subscriber-updates
			trigger-long-running-operation get-roots-list trigger-elicitation-request trigger-sampling-request simulate-research-query`,
	},
	"playwright-mcp": {
		"public raw, to public, none": `browser_navigate browser_navigate_back browser_snapshot browser_find browser_wait_for browser_hover
			browser_resize browser_emulate_media browser_close browser_tabs`,
		"public raw, to public, none, in browser/network": `browser_console_messages browser_network_request browser_network_requests`,
		"public raw, to public, none, in browser/vision":  `browser_take_screenshot browser_mouse_move_xy browser_mouse_wheel`,
		"public raw, to public, none, in browser/pdf":     `browser_pdf_save`,
		"public raw, to public, none, in browser/testing": `browser_generate_locator browser_verify_element_visible
			browser_verify_list_visible browser_verify_text_visible browser_verify_value`,
		"public raw, to public, none, in browser/mocking": `browser_route_list`,
		"public raw, to public, none, in browser/devtools": `browser_get_config browser_highlight browser_hide_highlight browser_annotate
			browser_start_recording browser_start_tracing browser_start_video browser_stop_recording browser_stop_tracing
			browser_stop_video browser_video_chapter browser_video_show_actions browser_video_hide_actions`,
		"secret raw, to public, none, in browser/storage": `browser_cookie_get browser_cookie_list browser_localstorage_get
			browser_localstorage_list browser_sessionstorage_get browser_sessionstorage_list browser_storage_state`,
		"public raw, to public, reversible": `browser_click browser_type browser_fill_form browser_press_key browser_select_option
			browser_drag browser_handle_dialog`,
		"public raw, to public, reversible, in browser/vision": `browser_mouse_click_xy browser_mouse_down browser_mouse_up
			browser_mouse_drag_xy`,
		"public raw, to public, reversible, in browser/mocking":  `browser_route browser_unroute browser_network_state_set`,
		"public raw, to public, reversible, in browser/devtools": `browser_resume`,
		"public raw, to public, irreversible, in browser/upload": `browser_file_upload browser_drop`,
		"public raw, to public, irreversible, in browser/storage": `browser_cookie_set browser_cookie_delete browser_cookie_clear
			browser_localstorage_set browser_localstorage_delete browser_localstorage_clear browser_sessionstorage_set
			browser_sessionstorage_delete browser_sessionstorage_clear browser_set_storage_state`,
		"public raw, to public, irreversible, in browser/devtools": `browser_evaluate browser_run_code_unsafe`,
	},
}

// writing are words of the names of tools that change something, but for those that only sound like it.
var (
	writing = regexp.MustCompile(`(^|[_-])(add|clear|click|create|delete|drop|edit|evaluate|fill|fork|merge|move|patch|post|push|run|send|set|toggle|trigger|type|update|upload|write)([_-]|$)`)
	sounds  = []string{"API-post-search", "browser_mouse_move_xy"} // a search by POST; a pointer
)

// TestPackages has real servers' tools, as they were recorded, in declarations that run the packages: each has the
// facts that stand above, none that writes counts as one that reads, and none is left out.
func TestPackages(t *testing.T) {
	p := shippedPolicy(t)
	files, err := filepath.Glob(recorded + "*.json")
	if err != nil || len(files) != len(packages) {
		t.Fatalf("%d lists are recorded, and %d stand here: %v", len(files), len(packages), err)
	}
	for _, file := range files {
		server := strings.TrimSuffix(filepath.Base(file), ".json")
		wants := map[string]string{}
		for facts, tools := range packages[server] {
			for _, tool := range strings.Fields(tools) {
				wants[tool] += facts
			}
		}
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var list struct {
			Package string
			Tools   []struct{ Name string }
		}
		if err := json.Unmarshal(b, &list); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		name := list.Package[:strings.LastIndex(list.Package, "@")]
		for _, tool := range list.Tools {
			f := p.Resolve(gate.Offer{Server: gate.Declared{Server: "x", Packages: []string{name}}, Name: tool.Name})
			if got := facts(f); got != wants[tool.Name] {
				t.Errorf("%s %s: %s, want %q", name, tool.Name, got, wants[tool.Name])
			}
			if f.Effect == gate.None && writing.MatchString(tool.Name) && !slices.Contains(sounds, tool.Name) {
				t.Errorf("%s %s writes, and its effect is none", name, tool.Name)
			}
			delete(wants, tool.Name)
		}
		if len(wants) > 0 {
			t.Errorf("%s has none of these: %v", name, wants)
		}
	}
}

// facts are what is known of a tool, in words.
func facts(f gate.Facts) string {
	s := f.Output.String() + ", to " + f.Audience.String() + ", " + f.Effect.String()
	if f.Tier != "" {
		s += ", in " + f.Tier
	}
	if f.Forbidden != "" {
		s += ", forbidden"
	}
	return s
}
