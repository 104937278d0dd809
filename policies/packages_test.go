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
const recorded = "schema/testdata/"

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
			f := p.Resolve(gate.Offer{Server: gate.Declared{Server: "x", Packages: []string{name}, Kept: true}, Name: tool.Name})
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

// TestGitHubsOwn has the tools of GitHub's own server, which is written in Go, by what its toolsnaps of v1.9.0 say of
// them.
func TestGitHubsOwn(t *testing.T) {
	const reads = `actions_get actions_list find_duplicate get_code_quality_finding get_code_scanning_alert get_commit
			get_dependabot_alert get_discussion get_discussion_comments get_file_blame get_file_contents get_gist
			get_global_security_advisory get_job_logs get_label get_latest_release get_me get_notification_details
			get_release_by_tag get_repository_tree get_secret_scanning_alert get_tag get_team_members get_teams
			issue_dependency_read issue_read list_branches list_code_scanning_alerts list_commits list_dependabot_alerts
			list_discussion_categories list_discussions list_gists list_global_security_advisories list_issue_fields
			list_issue_types list_issues list_label list_notifications list_org_repository_security_advisories
			list_pull_requests list_releases list_repository_collaborators list_repository_security_advisories
			list_secret_scanning_alerts list_starred_repositories list_tags projects_get projects_list pull_request_read
			search_code search_commits search_issues search_orgs search_pull_requests search_repositories search_users
			ui_get`
	const writes = `actions_run_trigger add_comment_to_pending_review add_issue_comment add_issue_comment_reaction
			add_issue_reaction add_pull_request_review_comment add_pull_request_review_comment_reaction
			add_reply_to_pull_request_comment add_sub_issue assign_copilot_to_issue assign_copilot_to_issue_with_intent
			create_branch create_gist create_issue create_or_update_file create_pull_request create_pull_request_review
			create_repository delete_file delete_pending_pull_request_review delete_repository discussion_comment_write
			dismiss_notification fork_repository issue_dependency_write issue_write label_write
			manage_notification_subscription manage_repository_notification_subscription mark_all_notifications_read
			merge_pull_request projects_write pull_request_review_write push_files remove_sub_issue reprioritize_sub_issue
			request_copilot_review request_pull_request_reviewers resolve_review_thread set_issue_fields star_repository
			sub_issue_write submit_pending_pull_request_review unresolve_review_thread unstar_repository update_gist
			update_issue_assignees update_issue_body update_issue_labels update_issue_milestone update_issue_state
			update_issue_title update_issue_type update_pull_request update_pull_request_body update_pull_request_branch
			update_pull_request_draft_state update_pull_request_state update_pull_request_title`
	p := shippedPolicy(t)
	f := func(tool string) gate.Facts {
		d := gate.Declared{Server: "x", Packages: []string{"go:github.com/github/github-mcp-server/cmd/github-mcp-server"}}
		return p.Resolve(gate.Offer{Server: d, Name: tool})
	}
	for tool := range strings.FieldsSeq(reads) {
		want := "internal raw, to internal, none"
		if strings.Contains(tool, "secret_scanning") {
			want = "secret raw, to internal, none"
		}
		if got := facts(f(tool)); got != want {
			t.Errorf("%s: %s, want %s", tool, got, want)
		}
	}
	back := []string{"create_branch", "fork_repository", "update_pull_request_branch"}
	for tool := range strings.FieldsSeq(writes) {
		got := f(tool)
		reversible := got.Effect == gate.Reversible && slices.Contains(back, tool)
		if got.Audience != gate.Public || got.Effect != gate.Irreversible && !reversible {
			t.Errorf("%s: %s", tool, facts(got))
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
