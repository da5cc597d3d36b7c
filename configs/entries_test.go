package configs

import (
	"slices"
	"strings"
	"testing"
)

func TestRedactURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"postgres://u:hunter2@h:5432/d?sslmode=disable":  "postgres://u:********@h:5432/d?sslmode=disable",
		"postgres://u:hunter2@a:1,b:2/d":                 "postgres://u:********@a:1,b:2/d",
		"postgres://u@h/d":                               "postgres://u@h/d",
		"postgres://:hunter2@h/d":                        "postgres://:********@h/d",
		"postgres://h/d?password=hunter2&sslkey=hunter2": "postgres://h/d?password=********&sslkey=********",
		"postgres://u:hunter2@/d?host=/run":              "postgres://u:********@/d?host=%2Frun",
		"amqp://guest:hun%2Fter2@h/%2Fv":                 "amqp://guest:********@h/%2Fv",
		"sqlite:/var/lib/a key=b.db":                     "sqlite:/var/lib/a key=b.db",
		"inproc:":                                        "inproc:",
		"host=h password=hunter2":                        Redacted,
		"postgres:hunter2":                               Redacted,
		"postgres://u:hunter2@h:port/d":                  Redacted,
		"\x7f":                                           Redacted,
		"amqp://u:hunter1@h1/;amqp://u:hunter2@h2/":      Redacted,
		"amqp://u:hunter1@h1/ amqp://u:hunter2@h2/":      Redacted,
		"amqp://u:hunter1@h1/|amqp://u:hunter2@h2/":      Redacted,
		"postgres://u:12/hunter2@h/d":                    Redacted,
		"postgres://u:12?hunter2@h/d":                    Redacted,
		"postgres://u:12#hunter2@h/d":                    Redacted,
		"postgres://h/d?user=me@x&sslmode=disable":       "postgres://h/d?sslmode=disable&user=********",
		"sqlite:/a.db;postgres://u:hunter2@h/d":          "sqlite:/a.db;postgres://********@h/d",
	} {
		if got := RedactURL(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestRedactText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cannot reach https://example.com:8443/a":                      "cannot reach https://example.com:8443/a",
		"key 'ann@example.com' of https://example.com/":                "key 'ann@example.com' of https://example.com/",
		`unknown command "postgres://u:hunter2@h/d"`:                   `unknown command "postgres://********@h/d"`,
		"amqp://u:hunter1@h1/;amqp://u:hunter2@h2/":                    "amqp://********@h2/",
		"set it, for example amqp://guest:guest@localhost/":            "set it, for example amqp://guest:guest@localhost/",
		"not one URL like postgres://user:password@host/name":          "not one URL like postgres://user:password@host/name",
		"postgres://u:hun ter#2/@h/d":                                  "postgres://********@h/d",
		"first postgres://u@h/d, then postgres://:hunter2@h/d\nsecond": "first postgres://u@h/d, then postgres://********@h/d\nsecond",
	} {
		if got := RedactText(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// FuzzRedact checks that the password of a URL never appears, in any surrounding text.
func FuzzRedact(f *testing.F) {
	for _, seed := range [][2]string{
		{"postgres", "h/d"}, {"amqp://u:p@h/;amqp", "h/"}, {"sqlite:/x;http", ""}, {"http://h/?a=%40&b", "h"}, {"postgres://h/d?", "@h"},
		{"http://h/#", ""}, {"amqp://u:p@h/ x:", "|"}, {"http://a%3A", "h?x=y"}, {"inproc:", ""},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "Hunter2"
		if strings.Contains(before+after, secret) {
			t.Skip("the secret is in another place too")
		}
		text := before + "://user:" + secret + "@" + after
		if got := RedactURL(text); strings.Contains(got, secret) {
			t.Errorf("%q: %q", text, got)
		}
		if got := RedactText(text); strings.Contains(got, secret) {
			t.Errorf("%q: %q", text, got)
		}
	})
}

func TestEntriesHoldNoPassword(t *testing.T) {
	t.Parallel()
	c := mustLoad(t, "", "DATABASE_URL=postgres://u:hunter2@h/d", "AMQP_URL=amqp://u:hunter2@a,amqps://u:hunter2@b")
	for _, e := range c.Entries() {
		if strings.Contains(e.Value, "hunter2") {
			t.Errorf("%s contains the password: %s", e.Key, e.Value)
		}
		if e.Key == "amqp.urls" && e.Value != "amqp://u:********@a,amqps://u:********@b" {
			t.Errorf("got %s", e.Value)
		}
	}
}

func TestVariablesAreUnique(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, v := range Variables() {
		if seen[v.Name] || seen[v.Key] {
			t.Errorf("%s or %s is listed twice", v.Name, v.Key)
		}
		seen[v.Name], seen[v.Key] = true, true
	}
	keys := []string{"types.<name>.retry.base", "webhook.secrets.<name>", "webhook.secret_hosts.<name>"}
	for _, e := range Default().Entries() {
		keys = append(keys, e.Key)
	}
	for _, key := range keys {
		if !seen[key] {
			t.Errorf("%s has no variable", key)
		}
	}
	i := slices.IndexFunc(Variables(), func(v Variable) bool { return v.Key == "database.url" })
	if v := Variables()[i]; v.Name != "HOLDFAST_DATABASE_URL" || v.Also != "DATABASE_URL" || v.File != "HOLDFAST_DATABASE_URL_FILE" {
		t.Errorf("got %+v", v)
	}
}

func TestTypeKeysMatchInUpperCase(t *testing.T) {
	t.Parallel()
	// No suffix may be the end of another one. Otherwise a variable could mean two keys.
	suffixes := taskSuffixes()
	for _, a := range suffixes {
		for _, b := range suffixes {
			if a != b && strings.HasSuffix("_"+variable(a), "_"+variable(b)) {
				t.Errorf("the suffix %s ends in %s", a, b)
			}
		}
	}
}

func TestEdits(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"kitten", "sitting", 3}, {"lease", "leaes", 2}} {
		if got := edits(test.a, test.b); got != test.want {
			t.Errorf("%q to %q: got %d, want %d", test.a, test.b, got, test.want)
		}
	}
}
