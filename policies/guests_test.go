package policies

import (
	"strings"
	"testing"

	"github.com/pfar/pfar/policies/gate"
)

// clean are the services that are said to hold what their owner wrote and nobody else, with the reason.
var clean = map[string]string{
	"filesystem":          "files of the owner's",
	"memory":              "notes of the model's own; a raw session's writes stain it",
	"sequential-thinking": "what goes in comes out again",
	"time":                "the clock",
}

// unread are the writes to services that strangers write into which can be undone and yet may carry what is not public:
// no stranger reads at once what they carry.
var unread = map[string]map[string]string{
	"it carries ids, dates, words of a list or a state, and no text": {
		"asana":    "asana_remove_*",
		"datadog":  "cancel_downtime unmute_host",
		"linear":   "linear_archive* linear_unarchive* linear_mark* linear_subscribe*",
		"notion":   "API-delete-a-block",
		"sentry":   "update_issue",
		"slack":    "conversations_mark saved_*",
		"supabase": "rebase_branch pause_project restore_project",
		"todoist":  "complete-tasks uncomplete-tasks reschedule-tasks reorder-objects",
	},
	"what it writes lies in one's own mailbox until it is sent": {
		"gmail": "draft_email modify_email batch_modify_emails create_label update_label get_or_create_label " +
			"create_draft label_* unlabel_*",
		"microsoft-365": "create-draft-email create-*-draft move-mail-message update-mail-message copy-mail-message " +
			"create-mail-folder create-mail-child-folder create-outlook-category",
	},
	"what it writes is seen by the accounts of its owner alone": {
		"datadog":  "mute_host",
		"mongodb":  "create-collection create-index connect switch-connection disconnect atlas-connect-cluster",
		"supabase": "create_branch",
	},
	"what it writes are files of the sandbox, or of a repository that the server cannot push": {
		"figma":         "download_figma_images",
		"git":           "git_add git_reset git_create_branch git_checkout git_commit git_branch",
		"microsoft-365": "download-bytes-to-file",
		"mongodb":       "export",
	},
}

// TestGuests holds to this: where strangers write, some of them read as well, as guests, as followers who get mails, or
// as those who a page is shared with. What a session that has read their text writes there is with them at once,
// whether or not it can be removed. So no such write counts as reversible, unless its audience is public, or nobody
// reads what it carries.
func TestGuests(t *testing.T) {
	p := shippedPolicy(t)
	excused := map[[2]string]bool{}
	for _, services := range unread {
		for service, tools := range services {
			for _, tool := range strings.Fields(tools) {
				excused[[2]string{service, tool}] = false
			}
		}
	}
	tools := 0
	for _, service := range Services() {
		known := p.Services[service]
		server := gate.Declared{Server: "x", Service: service, Kept: true}
		whole := p.Resolve(gate.Offer{Server: server, Name: "zzz"})
		if is := whole.Output.Integrity != gate.Raw; is != (clean[service] != "") {
			t.Errorf("%s: its output is %s, and the test says otherwise", service, whole.Output)
		}
		for _, w := range known.Words {
			if w.Tool == "" {
				continue
			}
			tools++
			f := p.Resolve(gate.Offer{Server: server, Name: strings.ReplaceAll(string(w.Tool), "*", "zzz")})
			if f.Output.Integrity != gate.Raw || f.Effect != gate.Reversible || f.Audience <= gate.Public {
				continue
			}
			tool := [2]string{service, string(w.Tool)}
			if _, ok := excused[tool]; !ok {
				t.Errorf("%s %s: strangers read what it writes, and it is %s, to %s", service, w.Tool, f.Effect, f.Audience)
			}
			excused[tool] = true
		}
	}
	for tool, met := range excused {
		if !met {
			t.Errorf("%s %s needs no excuse", tool[0], tool[1])
		}
	}
	if tools < 300 {
		t.Errorf("only %d tools", tools)
	}
	// What a raw session writes to such a service, with something internal in it, is never for inspectors alone to decide.
	for service, tools := range guests {
		for _, tool := range tools {
			f := p.Resolve(gate.Offer{Server: gate.Declared{Server: "x", Service: service, Kept: true}, Name: tool})
			s := gate.Session{Profile: "balanced", Label: gate.Label{Confidentiality: gate.Internal, Integrity: gate.Raw}}
			d := p.Decide(s, gate.Call{Name: tool, Method: "tools/call", Facts: f, Pinned: true, Schema: true, Audit: true})
			if d.Verdict != gate.Ask {
				t.Errorf("%s %s: %s, of %+v", service, tool, d.Verdict, f)
			}
		}
	}
}

// guests are tools by which a text of somebody's choice comes before the guests of a service.
var guests = map[string][]string{
	"airtable":      {"create_record", "update_records", "create_comment", "upload_attachment"},
	"asana":         {"asana_create_task", "asana_create_task_story", "asana_update_task", "asana_add_followers_to_task", "asana_set_parent_for_task"},
	"azure-devops":  {"wit_work_item_write", "wit_work_item_comment_write", "wiki_upsert_page", "repo_pull_request_thread_write", "repo_create_branch"},
	"datadog":       {"schedule_downtime"},
	"github":        {"add_issue_comment", "create_issue", "update_issue", "create_repository", "create_or_update_file"},
	"gitlab":        {"create_issue", "update_issue", "update_merge_request", "create_note", "create_label", "edit_milestone"},
	"gmail":         {"send_email"},
	"hubspot":       {"hubspot-create-engagement", "hubspot-update-engagement", "hubspot-batch-update-objects"},
	"jira":          {"jira_post", "jira_put", "jira_patch"},
	"linear":        {"linear_createIssue", "linear_createComment", "linear_updateIssue", "linear_transferIssue", "linear_assignIssue", "create_comment"},
	"microsoft-365": {"send-mail", "update-excel-range", "create-planner-task", "update-planner-task", "create-onenote-page", "create-todo-task", "set-my-status-message", "create-onedrive-folder"},
	"monday":        {"create_item", "create_update", "change_item_column_values", "move_item_to_group"},
	"mongodb":       {"insert-many", "update-many", "aggregate"},
	"n8n":           {"n8n_create_workflow"},
	"notion":        {"API-post-page", "API-create-a-comment", "API-patch-page"},
	"sentry":        {"add_issue_note", "create_project"},
	"slack":         {"slack_post_message", "conversations_add_message", "usergroups_create", "usergroups_update"},
	"stripe":        {"create_customer", "update_subscription"},
	"supabase":      {"execute_sql", "apply_migration"},
	"todoist":       {"add-tasks", "add-comments", "update-tasks", "manage-assignments", "project-move"},
}
