package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
)

// changeSetting is the page that changes a setting.
const changeSetting = "/settings/change"

// settingAt returns the URL of the page of a setting.
func settingAt(key string) string { return changeSetting + "?" + url.Values{"key": {key}}.Encode() }

// rowOf returns the row of a setting on the page of settings, and "" if there is none.
func (r answer) rowOf(key string) string {
	_, row, _ := strings.Cut(r.text, `<tr id="`+key+`">`)
	row, _, _ = strings.Cut(row, "</tr>")
	return row
}

// configured replaces the configuration of the process by one with values of every origin, and returns its secrets.
func (w *world) configured() (secrets []string) {
	w.Helper()
	file := filepath.Join(w.TempDir(), "holdfast.yaml")
	w.must(os.WriteFile(file, []byte("worker:\n  lease: 10s\ntypes:\n  mail:\n    timeout: 3m\nwebhook:\n  secrets:\n    bank: whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz\n  secret_hosts:\n    bank: [bank.example]\n"), 0o600))
	cfg, err := configs.Load(configs.Options{
		File: file,
		Env: []string{
			"DATABASE_URL=postgres://bob:hunter2@db.example/tasks?sslpassword=hunter3", "AMQP_URL=amqp://bob:hunter4@a.example/,amqp://bob:hunter5@b.example/",
			"HOLDFAST_DATABASE_DIRECT_URL=postgres://bob:hunter6@db.example/tasks", "HOLDFAST_NOTIFY_URL=https://bob:hunter7@example.com/?token=hunter8",
			"HOLDFAST_WORKER_CONCURRENCY=7",
		},
		Flags: map[string]string{"log.level": "debug"},
	})
	w.must(err)
	w.Config = cfg
	return []string{"hunter", "MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz"}
}

// TestSettingsHideSecrets checks that no page has a secret of the configuration, and that no filter finds one.
func TestSettingsHideSecrets(t *testing.T) {
	everywhere(t, func(w *world) {
		secrets := w.configured()
		for _, role := range store.TokenRoles() {
			b := w.as(role)
			for _, path := range []string{"/settings", "/settings?set=1", "/settings?q=url", "/settings?q=secret", settingAt("database.url"), settingAt("webhook.secrets.bank") + "&value=x"} {
				r := b.get(path)
				for _, secret := range secrets {
					if strings.Contains(r.text, secret) {
						w.Errorf("%s has the secret %s for a %s", path, secret, role)
					}
				}
			}
			for _, secret := range secrets {
				if r := b.get("/settings?q=" + secret); !strings.Contains(r.text, "No setting matches.") {
					w.Errorf("the filter finds the secret %s for a %s", secret, role)
				}
			}
			for _, key := range []string{"database.url", "worker.lease", "webhook.secrets.bank"} {
				if row := b.get("/settings").rowOf(key); (row != "") != (role == store.Admin) {
					w.Errorf("a %s sees %s: %q", role, key, row)
				}
			}
			if row := b.get("/settings").rowOf("types.mail.timeout"); !strings.Contains(row, "3m") || strings.Contains(row, "Change") != (role == store.Admin) {
				w.Errorf("a %s sees types.mail.timeout: %q", role, row)
			}
		}
	})
}

// TestSettingsHaveOrigins checks that the page has each setting, with its origin and whether it is the default.
func TestSettingsHaveOrigins(t *testing.T) {
	w := onFile(t, "/holdfast")
	w.configured()
	w.change("PATCH", "/settings", `{"defaults.retry.base":"9s","types.mail.max_attempts":"4"}`)
	admin := w.as(store.Admin)
	all := admin.get("/settings")
	for _, c := range []struct{ key, value, origin, standard string }{
		{"worker.lease", "10s", "file ", "5s"}, {"worker.concurrency", "7", "env HOLDFAST_WORKER_CONCURRENCY", "50"}, {"log.level", "debug", "command line", "info"},
		{"janitor.keep_archived", "0s", "default", ""}, {"defaults.retry.base", "9s", "store", "10s"}, {"types.mail.timeout", "3m", "file ", "0s"},
		{"types.mail.max_attempts", "4", "store", ""}, {"database.url", configs.Redacted, "env DATABASE_URL", "sqlite:"},
	} {
		row := all.rowOf(c.key)
		if !strings.Contains(row, c.value) || !strings.Contains(row, `<td data-l="from">`+c.origin) || strings.Contains(row, "differs") != (c.origin != "default") || !strings.Contains(row, c.standard) {
			w.Errorf("%s: %q, not %v", c.key, row, c)
		}
		set := admin.get("/settings?set=1")
		if (set.rowOf(c.key) != "") != (c.origin != "default") {
			w.Errorf("%s among those that are set: %q", c.key, set.rowOf(c.key))
		}
		if found := admin.get("/settings?q=" + url.QueryEscape(strings.ToUpper(c.key))); found.rowOf(c.key) == "" || found.rowOf("janitor.keep_done") != "" {
			w.Errorf("the filter %s: %s", c.key, found.text)
		}
	}
	for _, e := range w.Config.Entries() {
		if row := all.rowOf(e.Key); row == "" && !strings.HasPrefix(e.Key, "types.") {
			w.Errorf("the page has no row for %s", e.Key)
		}
		if row := admin.get("/settings?q=" + url.QueryEscape(e.Key)).rowOf(e.Key); row == "" {
			w.Errorf("the filter does not find %s", e.Key)
		}
	}
	host, err := os.Hostname()
	w.must(err)
	if !strings.Contains(all.text, " on "+host+", version test.") {
		w.Error("the page does not say which process it is about")
	}
}

// save returns the form of a page that makes a reviewed change.
func (r answer) save() (url.Values, bool) {
	i := slices.IndexFunc(r.forms, func(f form) bool { return strings.HasSuffix(f.action, changeSetting) && f.method == "post" })
	if i < 0 {
		return nil, false
	}
	values := r.forms[i].fields
	values.Set("reason", "because")
	return values, true
}

// valueOf returns the stored value of a setting.
func (w *world) valueOf(key string) string {
	w.Helper()
	stored, err := w.Store.StoredSettings(w.Context(), -1)
	w.must(err)
	return stored.Values[key]
}

// differences returns the texts of the differences on a page, without those of its history.
func (r answer) differences() string {
	var texts []string
	for _, e := range r.elements {
		if e.name == "table" && e.attrs["class"] == "rows audit" {
			break
		}
		if e.name == "del" || e.name == "ins" {
			texts = append(texts, e.text)
		}
	}
	return strings.Join(texts, "; ")
}

// TestChangeSetting sets a value, takes it back, sets it again and removes it.
func TestChangeSetting(t *testing.T) {
	everywhere(t, func(w *world) {
		const key = "types.mail.retry.base"
		admin := w.as(store.Admin)
		w.Enqueue(holdfast.NewTask{Type: "news"})
		if r := admin.get(changeSetting); !strings.Contains(r.text, `<option value="types.news.timeout">`) || !strings.Contains(r.text, `<option value="defaults.queue">`) {
			w.Errorf("the suggestions: %s", r.text)
		}
		change := func(query, was, is string) answer {
			w.Helper()
			review := admin.get(settingAt(key) + query)
			form, found := review.save()
			if got := review.differences(); !found || got != was+"; "+is {
				w.Fatalf("the review of %s: %q, %s", query, got, review.text)
			}
			before, _ := w.entries()
			r := admin.post(changeSetting, form)
			if r.status != http.StatusSeeOther || r.header.Get("Location") != settingAt(key) {
				w.Fatalf("%s: %d to %q: %s", query, r.status, r.header.Get("Location"), r.text)
			}
			if after, newest := w.entries(); after != before+1 || newest.Surface != store.Console || newest.Name != "admin" || newest.Reason != "because" {
				w.Errorf("%s: %d new entries in the audit log: %+v", query, after-before, newest)
			}
			page := admin.get(settingAt(key))
			if notices := page.find("div", "notice"); len(notices) != 1 || !strings.Contains(page.text, "was "+was+" and is now "+is) {
				w.Errorf("the page after %s: %s", query, page.text)
			}
			return page
		}
		page := change("&value=5s", "10s (default)", "5s (store)")
		undo, found := page.formFor("undoSetting")
		if !found || w.valueOf(key) != "5s" {
			w.Fatalf("after the change: %q, %s", w.valueOf(key), page.text)
		}
		if r := admin.post(undo.action, undo.fields); r.status != http.StatusSeeOther || w.valueOf(key) != "" {
			w.Errorf("undo: %d %s, the value is %q", r.status, r.summary(), w.valueOf(key))
		}
		change("&value=+5000ms+", "10s (default)", "5s (store)")
		change("&value=7s&unset=", "5s (store)", "7s (store)")
		if r := admin.get(settingAt(key) + "&value=7s"); len(r.find("span", "failed")) != 1 || r.differences() != "" {
			w.Errorf("the same value: %s", r.text)
		}
		if r := admin.get("/settings"); !strings.Contains(r.text, "/settings/change?key="+key+"&amp;unset=1") {
			w.Errorf("no link to remove the value: %s", r.rowOf(key))
		}
		stale, _ := admin.get(settingAt(key) + "&unset=1").save()
		change("&unset=1", "7s (store)", "10s (default)")
		stale.Del("tag")
		if r := admin.post(changeSetting, stale); r.status != http.StatusNotFound || len(r.find("p", "bad")) != 1 || w.valueOf(key) != "" {
			w.Errorf("a second removal: %d %s", r.status, r.text)
		}
	})
}

// TestSettingsOfTypesThatInherit checks that the review has all settings that change.
func TestSettingsOfTypesThatInherit(t *testing.T) {
	w := onFile(t, "")
	w.change("PATCH", "/settings", `{"types.mail.timeout":"1m","types.news.retry.base":"2s"}`)
	review := w.as(store.Admin).get(settingAt("defaults.retry.base") + "&value=4s")
	if got := review.differences(); got != "10s (default); 4s (store); 10s (default); 4s (store)" || !strings.Contains(review.text, "<code>types.mail.retry.base</code>") {
		w.Errorf("the differences: %q in %s", got, review.text)
	}
}

// TestProblemsOfSettings checks that the form keeps what was typed, and has the error at its field.
func TestProblemsOfSettings(t *testing.T) {
	w := onFile(t, "/holdfast")
	admin := w.as(store.Admin)
	for _, c := range []struct {
		key, value, reason, unset string
		status                    int
		field, text               string
	}{
		{"types.mail.retry.base", "soon", "why", "", 422, "value", "soon"},
		{"types.mail.retry.base", "", "why", "", 422, "value", ""},
		{"types.mail.retry.factor", "0.5", "", "", 422, "value", "0.5"},
		{"types.mail.retry.base", hostileName("value"), hostileName("reason"), "", 422, "value", ""},
		{"types.mail.retry.bse", "5s", "", "", 422, "key", "did you mean"},
		{"worker.lease", "5s", "why", "", 422, "key", "restart"},
		{hostileName("setting"), "5s", "", "", 422, "key", "unknown"},
		{"types.mail.retry.strategy", "list", "", "", 422, "value", "delays"},
		{"types.mail.retry.base", "5s", strings.Repeat("x", 1001), "", 422, "reason", "1001"},
		{"types.mail.retry.base", "", "why", "1", 404, "", "not set in the store"},
	} {
		before, _ := w.entries()
		form := url.Values{"key": {c.key}, "value": {c.value}, "reason": {c.reason}, "unset": {c.unset}}
		r := admin.post(changeSetting, form)
		var invalid []string
		kept := make(map[string]string)
		for _, e := range r.elements {
			if e.attrs["aria-invalid"] != "" {
				invalid = append(invalid, e.attrs["name"])
			}
			if e.name == "input" && e.attrs["type"] != "hidden" {
				kept[e.attrs["name"]] = e.attrs["value"]
			}
		}
		failed := append(r.find("span", "failed"), r.find("p", "bad")...)
		if r.status != c.status || len(failed) != 1 || !strings.Contains(failed[0].text, c.text) || strings.Join(invalid, " ") != c.field {
			w.Errorf("%.200s: %d, errors %v at %q: %s", fmt.Sprint(c), r.status, failed, invalid, r.summary())
		}
		if kept["key"] != c.key || kept["value"] != c.value || kept["reason"] != c.reason {
			w.Errorf("%.200s: the form has %.100q", fmt.Sprint(c), kept)
		}
		if after, _ := w.entries(); after != before {
			w.Errorf("%.200s: %d new entries in the audit log", fmt.Sprint(c), after-before)
		}
		w.checkText("a setting", r.text)
		if c.status == 422 && c.field != "reason" { // the review finds the error, too
			if r := admin.get(changeSetting + "?" + form.Encode()); len(r.find("span", "failed")) != 1 || r.differences() != "" {
				w.Errorf("the review of %.200s: %s", fmt.Sprint(c), r.text)
			}
		}
	}
	if r := admin.post(changeSetting, url.Values{}); r.status != http.StatusBadRequest {
		w.Errorf("a form without a key: %d", r.status)
	}
}

// TestConflictOfSettings changes a setting while another person reviews a change. The review is shown again.
func TestConflictOfSettings(t *testing.T) {
	everywhere(t, func(w *world) {
		const key = "types.mail.retry.base"
		admin := w.as(store.Admin)
		form, found := admin.get(settingAt(key) + "&value=5s").save()
		if !found {
			w.Fatal("no review")
		}
		w.change("PATCH", "/settings", `{"types.mail.retry.base":"3s"}`)
		r := admin.post(changeSetting, form)
		if r.status != http.StatusPreconditionFailed || !strings.Contains(r.summary(), "have changed since") || r.differences() != "3s (store); 5s (store)" || w.valueOf(key) != "3s" {
			w.Fatalf("the conflict: %d %s, %q", r.status, r.summary(), r.differences())
		}
		again, found := r.save()
		if !found || again.Get("value") != "5s" || again.Get("tag") == form.Get("tag") {
			w.Fatalf("the second review: %v", again)
		}
		if r := admin.post(changeSetting, again); r.status != http.StatusSeeOther || w.valueOf(key) != "5s" {
			w.Errorf("the second try: %d %s", r.status, r.summary())
		}
	})
}

// TestStoredSettingsWithoutEffect checks that a stored setting that this process does not know can be removed.
func TestStoredSettingsWithoutEffect(t *testing.T) {
	w := onFile(t, "")
	value := hostileName("setting")
	stored, err := w.Store.StoredSettings(w.Context(), -1)
	w.must(err)
	_, err = w.Store.ChangeSettings(w.Context(), tester, stored.Version, []store.SettingChange{{Action: store.ActionSet, Key: "types.mail.future", Value: &value}})
	w.must(err)
	admin := w.as(store.Admin)
	page := admin.get("/settings")
	w.checkText("a setting of the future", page.text)
	if !strings.Contains(page.text, `href="/settings/change?key=types.mail.future&amp;unset=1"`) {
		w.Fatalf("no link to remove it: %s", page.text)
	}
	form, found := admin.get(settingAt("types.mail.future") + "&unset=1").save()
	if !found {
		w.Fatal("no form to remove it")
	}
	if r := admin.post(changeSetting, form); r.status != http.StatusSeeOther || w.valueOf("types.mail.future") != "" {
		w.Errorf("remove it: %d %s", r.status, r.text)
	}
}
