package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/internal/access"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// settings is the view of the settings: those of tasks, which the store may have, and for an admin the configuration of
// this process, as GET /config has it.
type settings struct {
	Query   string
	Set     bool // only what is set somewhere
	Tasks   []section
	Process []section
	Full    bool // the caller may see the configuration of the process
	Host    string
	PID     int
	Stored  int              // settings in the store
	Ignored []ignoredSetting // stored settings without effect in this process
}

// section is a part of the settings with a heading.
type section struct {
	ID, Title string
	Rows      []settingRow
	Inherited int // settings of a type that are those of the defaults, and are not in Rows
}

// Prefix returns what the keys of the section of a type begin with.
func (s section) Prefix() string { return strings.TrimPrefix(s.ID, "s-") + "." }

// settingRow is a setting with its description.
type settingRow struct {
	configs.Entry
	Doc     string
	Default string // the default, or for a setting of a type the value in the defaults
	Differs bool   // the value is another one than Default
	Stored  bool   // a person has set it, in the store
}

// ignoredSetting is a stored setting without effect.
type ignoredSetting struct{ Key, Problem string }

// The keys of task settings begin with these prefixes.
const (
	defaultsPrefix = "defaults."
	typesPrefix    = "types."
)

// isTaskKey reports whether a key of the configuration is the key of a task setting, which the store may have.
func isTaskKey(key string) bool {
	return strings.HasPrefix(key, defaultsPrefix) || strings.HasPrefix(key, typesPrefix)
}

func (c *Console) settings(ctx context.Context, r *request) (any, error) {
	now, err := c.b.ReadSettings(ctx)
	if err != nil {
		return nil, err
	}
	v := settings{
		Query: r.q("q"), Set: r.q("set") != "", Full: access.Includes(r.Caller.Role, c.changes["getConfig"].Role),
		PID: os.Getpid(), Stored: len(now.Values),
	}
	if v.Host, err = os.Hostname(); err != nil {
		v.Host = "an unknown host"
	}
	for _, problem := range now.Ignored {
		v.Ignored = append(v.Ignored, ignoredSetting{problem.Key, problem.Problem})
	}
	words := strings.Fields(strings.ToLower(v.Query))
	for _, row := range describe(now) {
		task := isTaskKey(row.Key)
		if !task && !v.Full || v.Set && (row.Origin == originDefault || row.inherited()) || !row.matches(words) {
			continue
		}
		at := &v.Process
		if task {
			at = &v.Tasks
		}
		s := sectionOf(at, row.Key)
		if row.inherited() && len(words) == 0 {
			s.Inherited++
		} else {
			s.Rows = append(s.Rows, row)
		}
	}
	return v, nil
}

// inherited reports whether a setting of a type is that of the defaults.
func (s settingRow) inherited() bool {
	return strings.HasPrefix(s.Key, typesPrefix) && !s.Differs && !s.Stored
}

// matches reports whether each of the words is in a text of the setting. The value of a secret is redacted, so the
// filter cannot find it.
func (s settingRow) matches(words []string) bool {
	text := strings.ToLower(strings.Join([]string{s.Key, s.Value, s.Origin, s.Doc}, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// sectionTitles are the titles of the sections, by the first part of their keys.
var sectionTitles = map[string]string{
	"": "Process", "database": "Database", "amqp": "Broker", "log": "Log", "worker": "Worker", "producer": "Producer",
	"janitor": "Janitor", "api": "HTTP API", "console": "Console", "notify": "Notifications", "webhook": "HTTP tasks",
	"defaults": "Defaults for all types",
}

// sectionOf returns the section of a key. It adds the section if it is not there.
func sectionOf(sections *[]section, key string) *section {
	id, _, dotted := strings.Cut(key, ".")
	if !dotted {
		id = ""
	}
	title := cmp.Or(sectionTitles[id], id)
	if suffix, _, ok := typeSuffix(key); ok {
		name := strings.TrimSuffix(strings.TrimPrefix(key, typesPrefix), "."+suffix)
		id, title = typesPrefix+name, "Type "+name
	}
	id = "s-" + id
	if i := slices.IndexFunc(*sections, func(s section) bool { return s.ID == id }); i >= 0 {
		return &(*sections)[i]
	}
	*sections = append(*sections, section{ID: id, Title: title})
	return &(*sections)[len(*sections)-1]
}

// typeSuffix returns the part after the name of the type in the key of a setting of a type, and its description.
func typeSuffix(key string) (suffix string, v configs.Variable, ok bool) {
	if !strings.HasPrefix(key, typesPrefix) {
		return "", v, false
	}
	v, ok = variableOf(key)
	_, suffix, _ = strings.Cut(v.Key, "<name>.")
	return suffix, v, ok
}

// variables has the descriptions of all keys.
var variables = configs.Variables()

// variableOf returns the description of a key. In the key of a description, <name> is the name of any type or secret.
func variableOf(key string) (configs.Variable, bool) {
	i := slices.IndexFunc(variables, func(v configs.Variable) bool {
		before, after, placeholder := strings.Cut(v.Key, "<name>")
		named := placeholder && len(key) > len(before)+len(after)
		return v.Key == key || named && strings.HasPrefix(key, before) && strings.HasSuffix(key, after)
	})
	if i < 0 {
		return configs.Variable{}, false
	}
	return variables[i], true
}

const originDefault = "default"

// describe returns all settings, redacted, with their descriptions.
func describe(now app.EffectiveSettings) (rows []settingRow) {
	entries := now.Config.Entries()
	values := make(map[string]string)
	for _, e := range entries {
		values[e.Key] = e.Value
	}
	for _, e := range entries {
		row := describeOne(e, func(key string) string { return values[key] })
		_, row.Stored = now.Values[e.Key] // the origin may be that of the defaults
		rows = append(rows, row)
	}
	return rows
}

// describeOne returns a setting with its description. valueOf returns the values of the defaults.
func describeOne(e configs.Entry, valueOf func(key string) string) settingRow {
	row := settingRow{Entry: e}
	v, _ := variableOf(e.Key)
	row.Doc, row.Default = v.Doc, v.Default
	if suffix, _, ok := typeSuffix(e.Key); ok {
		row.Default = valueOf(defaultsPrefix + suffix)
	}
	row.Differs = e.Origin != originDefault && e.Value != row.Default
	if strings.HasPrefix(e.Origin, "flag ") {
		row.Origin = "command line" // the console does not know the flag as it was typed
	}
	return row
}

// setting is the view of the form that changes a setting in the store. It has two steps: the first shows what would
// change, and the second makes the change by the HTTP API.
type setting struct {
	Now        time.Time
	Here       string // the URL of the page of Key
	Key, Value string
	Unset      bool
	Reason     string
	Typed      bool // the form has a value
	Tag        string
	Keys       []string // suggestions
	Known      bool     // Key is the key of a task setting; the fields below are about it
	Row        settingRow
	InStore    bool // the store has a value
	Own        string
	History    []surface.AuditEntry
	Undo       bool // the last change can be taken back

	Conflict string // another person has changed the settings since the review
	Failed   string // what is wrong
	At       string // the name of the field that is wrong; "" if the error belongs to none
	Hint     string
	Changes  []settingDifference
	More     int  // further changes, which are not in Changes
	Ready    bool // the change can be made
}

// settingDifference is a setting whose value or origin changes.
type settingDifference struct{ Key, Was, WasOrigin, Is, IsOrigin string }

const maxSettingChanges = 50 // on a page

// setting loads the form with the values of the query.
func (c *Console) setting(ctx context.Context, r *request) (any, error) {
	v, now, err := c.openSetting(ctx, r.URL.Query())
	if err == nil && (v.Typed || v.Unset) {
		c.reviewSetting(v, now)
	}
	return v, err
}

// openSetting reads what the form is about.
func (c *Console) openSetting(ctx context.Context, form url.Values) (*setting, app.EffectiveSettings, error) {
	v := &setting{
		Key: strings.TrimSpace(form.Get("key")), Value: strings.TrimSpace(form.Get("value")), Typed: form.Has("value"),
		Unset: form.Get("unset") != "", Reason: strings.TrimSpace(form.Get("reason")),
	}
	v.Here = c.settingURL(v.Key)
	now, err := c.b.ReadSettings(ctx)
	if err != nil {
		return v, now, err
	}
	v.Tag = settingsTag(now.Version)
	if v.Now, err = c.b.Store.Now(ctx); err != nil {
		return v, now, err
	}
	if v.Keys, err = c.settingKeys(ctx, now.Config); err != nil || v.Key == "" {
		return v, now, err
	}
	v.Own, v.InStore = now.Values[v.Key]
	if entry, err := now.Config.TaskEntry(v.Key); err == nil {
		v.Known = true
		v.Row = describeOne(entry, func(key string) string {
			e, _ := now.Config.TaskEntry(key)
			return e.Value
		})
	}
	entries, err := c.b.Store.AuditLog(ctx, store.AuditFilter{Subject: store.SettingSubject(v.Key), Limit: historyLimit})
	v.History = surface.Each(entries, surface.AuditEntryOf)
	v.Undo = len(v.History) > 0 && (v.History[0].Action == store.ActionSet || v.History[0].Action == store.ActionUnset)
	return v, now, err
}

// settingURL returns the URL of the page of a setting.
func (c *Console) settingURL(key string) string {
	return c.o.Prefix + "/settings/change?" + url.Values{"key": {key}}.Encode()
}

// Inherits returns the key whose value a setting of a type has without one of its own.
func (v *setting) Inherits() string {
	if suffix, _, ok := typeSuffix(v.Key); ok {
		return defaultsPrefix + suffix
	}
	return ""
}

// settingsTag returns the ETag of the settings in the HTTP API.
func settingsTag(version int64) string { return fmt.Sprintf("%q", fmt.Sprint(version)) }

// settingKeys returns the keys of task settings: those of the defaults, of the configured types and of the types of
// which the store has tasks.
func (c *Console) settingKeys(ctx context.Context, now configs.Config) (keys []string, err error) {
	groups, err := c.b.Store.CountGroups(ctx)
	if err != nil {
		return nil, err
	}
	types := make(map[string]bool)
	for _, g := range groups {
		types[g.Type] = true
	}
	for name := range now.Types {
		types[name] = true
	}
	names := slices.Sorted(maps.Keys(types))
	var suffixes []string
	for _, v := range variables {
		if suffix, ok := strings.CutPrefix(v.Key, defaultsPrefix); ok {
			suffixes, keys = append(suffixes, suffix), append(keys, v.Key)
		}
	}
	for _, name := range names[:min(len(names), maxSuggestions)] {
		for _, suffix := range suffixes {
			if key := typesPrefix + name + "." + suffix; c.settable(key) {
				keys = append(keys, key)
			}
		}
	}
	return keys, nil
}

// settable reports whether a key is the key of a task setting.
func (c *Console) settable(key string) bool {
	_, err := c.b.Config.TaskEntry(key)
	return err == nil
}

// reviewSetting computes what a change would do in this process.
func (c *Console) reviewSetting(v *setting, now app.EffectiveSettings) {
	values := maps.Clone(now.Values)
	if values == nil {
		values = make(map[string]string)
	}
	if v.Unset {
		if !v.InStore {
			missing := fmt.Errorf("%w: %s is not set in the store", holdfast.ErrNotFound, v.Key)
			v.fail(c.problemOf(cmp.Or(v.unknown(now), missing)))
			return
		}
		delete(values, v.Key)
	} else {
		value, err := configs.StoredValue(v.Key, v.Value)
		if err != nil {
			v.fail(c.problemOf(err))
			return
		}
		values[v.Key] = value
	}
	next, ignored := c.b.Config.WithStored(values)
	before := make(map[string]bool)
	for _, problem := range now.Ignored {
		before[problem.Error()] = true
	}
	for _, problem := range ignored {
		if !before[problem.Error()] {
			v.fail(c.problemOf(problem))
			return
		}
	}
	v.compare(now, next, values)
	if v.Ready = len(v.Changes) > 0; !v.Ready {
		v.Failed, v.At = "the store has this value already", "value"
	}
}

// unknown returns an error if the key is not the key of a task setting.
func (v *setting) unknown(now app.EffectiveSettings) error {
	_, err := now.Config.TaskEntry(v.Key)
	return err
}

// compare sets the differences between the settings before and after a change.
func (v *setting) compare(now app.EffectiveSettings, next configs.Config, values map[string]string) {
	keys := map[string]bool{v.Key: true}
	for _, entries := range [][]configs.Entry{now.Config.TaskEntries(true), next.TaskEntries(true)} {
		for _, e := range entries {
			keys[e.Key] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(keys), func(a, b string) int {
		return cmp.Or(first(a == v.Key)-first(b == v.Key), cmp.Compare(a, b))
	}) {
		was, err := now.Config.TaskEntry(key)
		is, other := next.TaskEntry(key)
		if err != nil || other != nil { // a stored key that this build does not know
			was = configs.Entry{Value: now.Values[key], Origin: configs.StoreOrigin}
			is = configs.Entry{Value: values[key], Origin: "nowhere"}
		}
		if was.Value == is.Value && (was.Origin == is.Origin || key != v.Key) {
			continue
		}
		if len(v.Changes) == maxSettingChanges {
			v.More++
			continue
		}
		v.Changes = append(v.Changes, settingDifference{key, was.Value, origin(was), is.Value, origin(is)})
	}
}

// first returns a sort key: 0 if is is true, and 1 otherwise.
func first(is bool) int {
	if is {
		return 0
	}
	return 1
}

// origin returns the origin of a value as pages show it.
func origin(e configs.Entry) string { return describeOne(e, func(string) string { return "" }).Origin }

// problemOf returns an error as the HTTP API returns it.
func (c *Console) problemOf(err error) problem {
	p := c.o.API.Problem(err)
	return problem{Status: p.Status, Detail: p.Detail, Hint: p.Hint}
}

// fail sets what is wrong. An error of an unknown key belongs to the key, and any other one to the value.
func (v *setting) fail(p problem) {
	v.Failed, v.Hint, v.At, v.Ready = p.Detail, p.Hint, "value", false
	switch {
	case p.Status != http.StatusUnprocessableEntity:
		v.At = ""
	case !v.Known:
		v.At = "key"
	case strings.Contains(p.Detail, "the reason has"):
		v.At = "reason"
	case v.Unset:
		v.At = ""
	}
}

// saveSetting answers the form that makes a reviewed change.
func (c *Console) saveSetting(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), pageTimeout)
	defer cancel()
	req, form := c.request(r.WithContext(ctx)), r.PostForm
	v, now, err := c.openSetting(ctx, form)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	if v.Key == "" {
		c.fail(w, r, http.StatusBadRequest, errors.New("the form lacks the field key"))
		return
	}
	status, answer, err := c.changeSetting(req.Request, v, form)
	if err != nil {
		c.fail(w, r, 0, err)
		return
	}
	switch {
	case status < http.StatusMultipleChoices:
		c.setNotice(w, notice{Text: v.outcome(ctx, c, now), Undo: "undoSetting", ID: v.Key})
		http.Redirect(w, r, v.Here, http.StatusSeeOther)
		return
	case status == http.StatusPreconditionFailed || status == http.StatusConflict:
		c.reviewSetting(v, now)
		v.Conflict = "The settings have changed since you reviewed this change. Nothing is saved yet: review it again."
		if status == http.StatusConflict {
			v.Conflict = problemIn(status, answer).Detail
		}
	default:
		v.fail(problemIn(status, answer))
	}
	c.render(w, r, status, "setting", frame{Title: "Change a setting", Nav: "settings", request: req, View: v})
}

// changeSetting makes a change by the operation of the HTTP API.
func (c *Console) changeSetting(r *http.Request, v *setting, form url.Values) (status int, answer []byte, err error) {
	query := url.Values{}
	if v.Reason != "" {
		query.Set("reason", v.Reason)
	}
	value := &v.Value
	if v.Unset {
		value = nil
	}
	text, err := json.Marshal(map[string]*string{v.Key: value})
	if err != nil {
		return 0, nil, err
	}
	rec, err := c.serve(r, "changeSettings", url.Values{"tag": {form.Get("tag")}}, query, "application/json", text)
	if err != nil {
		return 0, nil, err
	}
	return rec.status, rec.body.Bytes(), nil
}

// maxNoticeValue is the maximum number of characters of a value in a notice, which is in a cookie.
const maxNoticeValue = 100

// outcome returns what the change has done: the value before and after it.
func (v *setting) outcome(ctx context.Context, c *Console, before app.EffectiveSettings) string {
	short := func(text string) string {
		if runes := []rune(text); len(runes) > maxNoticeValue {
			text = string(runes[:maxNoticeValue]) + "…"
		}
		return cmp.Or(text, "empty")
	}
	was, err := before.Config.TaskEntry(v.Key)
	after, other := c.b.ReadSettings(ctx)
	is, unknown := after.Config.TaskEntry(v.Key)
	if cmp.Or(err, other, unknown) != nil {
		return "The change of " + v.Key + " is stored"
	}
	return fmt.Sprintf("%s was %s (%s) and is now %s (%s)", v.Key, short(was.Value), origin(was), short(is.Value), origin(is))
}

// undoneSetting is the body of a request that takes back the last change of a setting.
func undoneSetting(form url.Values) (any, error) {
	return map[string]string{"key": form.Get("id")}, nil
}
