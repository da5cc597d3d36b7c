package postgres_test

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/consumer/webhook"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/postgres"
	"github.com/holdfastq/holdfast/workshop/pgtest"
)

// openForSQL returns a new store, the name of its schema, and a connection like that of a program in another language.
func openForSQL(t *testing.T) (*postgres.Store, string, *sql.DB) {
	t.Helper()
	address, schema := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: schema})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, schema, callersDB(t)
}

// TestEnqueueInSQL calls the function enqueue as a program in another language does: with a connection of its own, and
// without the schema in the search path.
func TestEnqueueInSQL(t *testing.T) {
	t.Parallel()
	s, schema, db := openForSQL(t)
	enqueue := func(tx *sql.Tx, arguments string) (id holdfast.TaskID) {
		t.Helper()
		if err := tx.QueryRow("select " + schema + ".enqueue(" + arguments + ")").Scan(&id); err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		return id
	}
	published := func() (ids []holdfast.TaskID) {
		t.Helper()
		_, err := s.DispatchOutbox(t.Context(), store.Queues{}, 100, func(_ context.Context, entries []store.OutboxEntry) []bool {
			done := make([]bool, len(entries))
			for i, entry := range entries {
				done[i] = true
				for _, ticket := range entry.Tickets {
					ids = append(ids, ticket.Task)
				}
			}
			return done
		})
		if err != nil {
			t.Fatal(err)
		}
		return ids
	}
	begin := func() *sql.Tx {
		t.Helper()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		return tx
	}

	tx := begin()
	dropped := enqueue(tx, `'mail'`)
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Task(t.Context(), dropped); err == nil {
		t.Error("the task of a transaction that was rolled back is stored")
	}

	tx = begin()
	first := enqueue(tx, `'mail', '{"a":  1e400}', queue => 'slow', unique_key => 'u', max_attempts => 3, tags => array['order:7', 'größe', '<b>'], key => 'tenant 7'`)
	again := enqueue(tx, `'mail', unique_key => 'u', tags => array['again']`)
	later := enqueue(tx, `'report', delay => '1 hour'`)
	urgent := map[string]holdfast.TaskID{}
	for _, priority := range []string{"low", "normal", "high", "critical", "0", "4", "7", "9"} {
		urgent[priority] = enqueue(tx, `'mail', delay => '1 hour', priority => '`+priority+`'`)
	}
	if got := published(); len(got) != 0 {
		t.Errorf("tickets before the commit: %v", got)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if first != again {
		t.Errorf("the duplicate is task %s, want %s", again, first)
	}
	task, err := s.Task(t.Context(), first)
	if err != nil || task.Type != "mail" || task.Queue != "slow" || task.Unique != "u" || task.Key != "tenant 7" || task.MaxAttempts != 3 || string(task.Payload) != `{"a":  1e400}` || task.State != holdfast.Ready ||
		!slices.Equal(task.Tags, []string{"order:7", "größe", "<b>"}) {
		t.Errorf("task %+v, %v", task, err)
	}
	for tag, want := range map[string]int{"order:7": 1, "größe": 1, "<b>": 1, "again": 0} {
		page, err := s.List(t.Context(), store.Filter{Tags: []string{tag}})
		if err != nil || len(page.Tasks) != want {
			t.Errorf("the tag %s: %+v, %v; want %d tasks", tag, page.Tasks, err, want)
		}
	}
	if page, err := s.List(t.Context(), store.Filter{Key: "tenant 7"}); err != nil || len(page.Tasks) != 1 {
		t.Errorf("the key has %+v, %v; want one task", page.Tasks, err)
	}
	if task, err = s.Task(t.Context(), later); err != nil || task.NextRunAt.Sub(task.CreatedAt) < time.Hour-time.Minute || task.Queue != holdfast.DefaultQueue || len(task.Tags) != 0 {
		t.Errorf("delayed task %+v, %v", task, err)
	}
	if got := published(); len(got) != 1 || got[0] != first {
		t.Errorf("tickets after the commit: %v, want task %s", got, first)
	}
	for text, id := range urgent {
		want, _ := holdfast.ParsePriority(text)
		if task, err := s.Task(t.Context(), id); err != nil || task.Priority != want || task.Queue != holdfast.DefaultQueue {
			t.Errorf("the priority %s is that of task %+v, %v", text, task, err)
		}
	}
	if names, err := s.QueueNames(t.Context()); err != nil || strings.Join(names, " ") != "default default.critical default.high default.low slow" {
		t.Errorf("queues %v, %v", names, err)
	}

	for arguments, payload := range map[string]string{
		`'mail', '{"a": 1}'::json`: `{"a": 1}`, `'mail', '{"a":1}'::jsonb`: `{"a": 1}`, `'mail', '{"a": 1}'::text`: `{"a": 1}`, `'mail', '{"a": 1}'::varchar`: `{"a": 1}`,
		`'mail', payload => '[]'::jsonb, max_attempts => 3::bigint, priority => 4`: `[]`, `'mail', max_attempts => 3::smallint, priority => 4::bigint, key => 'k'::varchar`: `null`,
		`'mail', tags => array['a']::varchar[], queue => 'default'::varchar`: `null`, `'http', '{"URL": "HTTPS://a.example:8443/x?y=1#z", "method": "get", "body": {"a": "\u0000"}, "headers": {"X-A": "b"}, "timeout": "1m30s", "secret_ref": "s"}'`: ``,
		`'http', '{"url": "http://a.example", "method": null, "headers": null, "body_base64": "aGk="}'::jsonb`: ``,
	} {
		var id holdfast.TaskID
		if err := db.QueryRowContext(t.Context(), "select "+schema+".enqueue("+arguments+")").Scan(&id); err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		if task, err := s.Task(t.Context(), id); err != nil || payload != "" && string(task.Payload) != payload {
			t.Errorf("%s: the payload is %s, %v", arguments, task.Payload, err)
		}
	}
	for arguments, want := range map[string]string{
		`'mail', '{"a'`:                                               "json",
		`'mail', null::jsonb`:                                         "payload",
		`'mail', null::text`:                                          "payload",
		`'mail', max_attempts => 1 << 31`:                             "max_attempts",
		`'mail', max_attempts => 2147483648`:                          "max_attempts",
		`'mail', max_attempts => null`:                                "max_attempts",
		`'mail', priority => 10`:                                      "priority '10'",
		`'mail', to_json(repeat('x', 1048575))`:                       "the payload has 1048577 bytes, the limit is 1048576",
		`'mail', repeat('[', 9991) || repeat(']', 9991)`:              "more than 9990 levels",
		`'mail', repeat('{"a":', 12000) || '1' || repeat('}', 12000)`: "more than 9990 levels",
		`'http'`:                       "not an object",
		`'http', '{"u": 1}'`:           `unknown field "u"`,
		`'http', '{"url": "ftp://a"}'`: "the url must begin with http:// or https://",
		`'http', '{"url": "http://a", "method": "BREW"}'::jsonb`: "the method",
		`''`:                                           "task type",
		`null`:                                         "task type",
		`'a b'`:                                        "task type",
		`'mail', queue => 'A'`:                         "queue",
		`'mail', queue => 'a.high'`:                    "queue",
		`'mail', priority => 'urgent'`:                 "priority 'urgent'",
		`'mail', priority => '10'`:                     "priority '10'",
		`'mail', priority => null`:                     "priority NULL",
		`'mail', null`:                                 "payload",
		`'mail', delay => '-1 s'`:                      "delay",
		`'mail', delay => '9000 years'`:                "after the year 9999",
		`'mail', max_attempts => -1`:                   "max_attempts",
		`'mail', unique_key => repeat('k', 256)`:       "unique key",
		`'mail', unique_for => '1 hour'`:               "need a unique_key",
		`'mail', unique_while_open => true`:            "need a unique_key",
		`'mail', unique_key => 'k', unique_for => '0'`: "unique_for is not positive",
		`'mail', unique_key => 'k', unique_while_open => null`:                      "unique_while_open is null",
		`'mail', key => repeat('k', 256)`:                                           "the key",
		`'mail', key => E'a\tb'`:                                                    "the key",
		`'mail', topic => repeat('k', 256)`:                                         "the topic",
		`repeat('t', 101)`:                                                          "task type",
		`'mail', queue => repeat('q', 101)`:                                         "queue",
		`'mail', tags => array[repeat('t', 65)]`:                                    "the tag",
		`'mail', tags => array['a', 'b', 'a']`:                                      "the tag a appears twice",
		`'mail', tags => array[null]`:                                               "the tag NULL must be",
		`'mail', tags => array['a b']`:                                              "the tag 'a b' must be",
		`'mail', tags => array[['a'], ['b']]`:                                       "array of arrays",
		`'mail', tags => (select array_agg(n::text) from generate_series(1, 17) n)`: "17 tags",
	} {
		_, err := db.ExecContext(t.Context(), "select "+schema+".enqueue("+arguments+")")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error about %s", arguments, err, want)
		}
	}
}

// TestEnqueueInSQLReleasesKeys stores tasks whose unique keys earlier tasks lose.
func TestEnqueueInSQLReleasesKeys(t *testing.T) {
	t.Parallel()
	s, schema, db := openForSQL(t)
	enqueue := func(arguments string) (id holdfast.TaskID) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "select "+schema+".enqueue("+arguments+")").Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	for _, payload := range []string{"'1'", "'1'::json", "'1'::jsonb"} {
		first := enqueue(`'mail', ` + payload + `, unique_key => 'k', unique_while_open => true, unique_for => '1 hour'`)
		for _, arguments := range []string{"unique_while_open => true", "unique_for => '1 hour'", "unique_for => null"} {
			if id := enqueue(`'mail', ` + payload + `, unique_key => 'k', ` + arguments); id != first {
				t.Errorf("enqueue with %s returned task %s, want %s", arguments, id, first)
			}
		}
		second := enqueue(`'mail', ` + payload + `, unique_key => 'k', unique_for => '1 microsecond'`)
		if task, err := s.Task(t.Context(), first); second == first || err != nil || task.Unique != "" {
			t.Errorf("enqueue returned task %s, and task %s is %+v, %v", second, first, task, err)
		}
		if _, err := db.ExecContext(t.Context(), "update "+schema+".tasks set state = 'dead', dead_at = now() where id = $1", second); err != nil {
			t.Fatal(err)
		}
		if third := enqueue(`'mail', ` + payload + `, unique_key => 'k', unique_while_open => true`); third == second {
			t.Errorf("enqueue returned the dead task %s", third)
		}
		enqueue(`'mail', ` + payload + `, unique_key => 'k', unique_for => '1 microsecond'`)
		if _, err := db.ExecContext(t.Context(), "delete from "+schema+".tasks"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEnqueueInSQLKeepsKeys deletes tasks whose unique keys are kept.
func TestEnqueueInSQLKeepsKeys(t *testing.T) {
	t.Parallel()
	_, schema, db := openForSQL(t)
	enqueue := func(arguments string) (id holdfast.TaskID) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), "select "+schema+".enqueue('mail', '1', unique_key => 'k'"+arguments+")").Scan(&id); err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), "delete from "+schema+".tasks"); err != nil {
			t.Fatal(err)
		}
		return id
	}
	last := enqueue(", unique_for => '1 hour'")
	for _, c := range []struct {
		arguments string
		duplicate bool
	}{
		{"", true}, {", unique_for => '1 hour'", true}, {", unique_for => '1 microsecond'", false}, {"", false}, {", unique_for => '1 year'", false},
		{"", true}, {", unique_while_open => true", false}, {"", false}, {", unique_for => '1 hour', unique_while_open => true", false}, {"", false},
	} {
		id := enqueue(c.arguments)
		if (id == last) != c.duplicate {
			t.Errorf("enqueue with the arguments %q returned task %s after task %s", c.arguments, id, last)
		}
		last = id
	}
}

// TestEnqueueInSQLChecksPayloads compares the checks of a payload with those of a producer.
func TestEnqueueInSQLChecksPayloads(t *testing.T) {
	t.Parallel()
	_, schema, db := openForSQL(t)
	nested := func(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }
	webhooks, err := webhook.New(webhook.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ taskType, payload string }{
		{"mail", nested(9000)}, {"mail", nested(holdfast.MaxPayloadDepth)}, {"mail", nested(holdfast.MaxPayloadDepth + 1)}, {"mail", nested(10_001)},
		{"mail", `"` + strings.Repeat("[", 30_000) + `\"{\\"`}, {"mail", "[" + strings.Repeat(`{"[":"]"},`, 5000) + "1]"},
		{"mail", `"` + strings.Repeat("é", holdfast.DefaultMaxPayload/2-1) + `"`}, {"mail", `"` + strings.Repeat("é", holdfast.DefaultMaxPayload/2) + `"`},
		{"http", `null`}, {"http", `[]`}, {"http", `"http://a"`}, {"http", `{}`}, {"http", `{"url":""}`}, {"http", `{"url":null}`}, {"http", `{"url":1}`},
		{"http", `{"url":"http://a"}`}, {"http", `{"URL":"http://a"}`}, {"http", `{"url":"a"}`}, {"http", `{"url":"ftp://a"}`}, {"http", `{"url":"http://"}`},
		{"http", `{"url":"http://u:p@a"}`}, {"http", `{"url":"http://a:0"}`}, {"http", `{"url":"http://a:65536"}`}, {"http", `{"url":"http://a/%zz"}`},
		{"http", `{"url":"http://a/\u0001"}`}, {"http", `{"url":"http://` + strings.Repeat("a", 254) + `"}`}, {"http", `{"url":"http://a/` + strings.Repeat("a", 9000) + `"}`},
		{"http", `{"url":"http://a","unknown":1}`}, {"http", `{"url":"http://a","method":"get"}`}, {"http", `{"url":"http://a","method":""}`},
		{"http", `{"url":"http://a","method":"BREW"}`}, {"http", `{"url":"http://a","method":1}`}, {"http", `{"url":"http://a","headers":[]}`},
		{"http", `{"url":"http://a","headers":{"A":"b"}}`}, {"http", `{"url":"http://a","headers":{"A":1}}`}, {"http", `{"url":"http://a","headers":{"A":null}}`},
		{"http", `{"url":"http://a","headers":{"A b":"c"}}`}, {"http", `{"url":"http://a","headers":{"":"c"}}`}, {"http", `{"url":"http://a","headers":{"A":"b\nc"}}`},
		{"http", `{"url":"http://a","headers":{"A":"b\tc"}}`}, {"http", `{"url":"http://a","headers":{"host":"b"}}`}, {"http", `{"url":"http://a","headers":{"A":"b","a":"c"}}`},
		{"http", `{"url":"http://a","headers":{"A":"` + strings.Repeat("b", 33_000) + `"}}`},
		{"http", `{"url":"http://a","body":{"a":"\u0000"}}`}, {"http", `{"url":"http://a","body":1,"body_base64":"aGk="}`}, {"http", `{"url":"http://a","body":null,"body_base64":"aGk="}`},
		{"http", `{"url":"http://a","body":1,"body_base64":""}`}, {"http", `{"url":"http://a","body_base64":"aG"}`}, {"http", `{"url":"http://a","body_base64":"a-_="}`},
		{"http", `{"url":"http://a","timeout":"10s"}`}, {"http", `{"url":"http://a","timeout":""}`}, {"http", `{"url":"http://a","timeout":"0s"}`}, {"http", `{"url":"http://a","timeout":"-1s"}`},
		{"http", `{"url":"http://a","timeout":"10"}`}, {"http", `{"url":"http://a","timeout":"0.2m.1s1us"}`}, {"http", `{"url":"http://a","timeout":"."}`}, {"http", `{"url":"http://a","timeout":10}`},
	} {
		want := holdfast.NewTask{Type: c.taskType, Payload: []byte(c.payload)}.Validate(holdfast.DefaultMaxPayload)
		if want == nil && c.taskType == webhook.Type {
			want = webhooks.Validate([]byte(c.payload))
		}
		_, err := db.ExecContext(t.Context(), "select "+schema+".enqueue($1, $2::json)", c.taskType, c.payload)
		if (err == nil) != (want == nil) {
			t.Errorf("%s %.100s: %v, want %v", c.taskType, c.payload, err, want)
		}
	}
	if _, err := db.ExecContext(t.Context(), "set holdfast.max_payload = 2000000; select "+schema+".enqueue('mail', to_json(repeat('x', 1999998)))"); err != nil {
		t.Errorf("with a higher limit: %v", err)
	}
}

// TestEnqueueInSQLChecksTags compares the check of a tag with the one in Go. It uses the characters at both sides of
// each border between allowed and other characters.
func TestEnqueueInSQLChecksTags(t *testing.T) {
	t.Parallel()
	address, schema := pgtest.Schema(t)
	s := pgtest.Connect(t, postgres.Options{URL: address, Schema: schema})
	if _, err := s.MigrateUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	tags := []string{"", strings.Repeat("x", holdfast.MaxTagLength), strings.Repeat("x", holdfast.MaxTagLength+1), strings.Repeat("é", 33), "a,b", "-", "größe"}
	var before string
	for r := rune(1); r <= unicode.MaxRune; r++ {
		if !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z, unicode.Cc, unicode.Cf, unicode.Co) {
			continue // not an assigned character
		}
		tag := string(r)
		if (holdfast.CheckTag(tag) == nil) != (holdfast.CheckTag(before) == nil) {
			tags = append(tags, before, tag)
		}
		before = tag
	}
	if len(tags) < 50 {
		t.Errorf("only %d tags", len(tags))
	}
	db := callersDB(t)
	for _, tag := range tags {
		_, err := db.ExecContext(t.Context(), "select "+schema+".enqueue('mail', tags => array[$1])", tag)
		if want := holdfast.CheckTag(tag); (err == nil) != (want == nil) {
			t.Errorf("the tag %q: %v, want %v", tag, err, want)
		}
	}
}
