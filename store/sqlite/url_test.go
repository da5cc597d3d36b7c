package sqlite_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store/sqlite"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"sqlite:jobs.db":                  "jobs.db",
		"sqlite:./data/jobs.db":           "./data/jobs.db",
		"sqlite:/var/lib/jobs.db":         "/var/lib/jobs.db",
		"sqlite:///var/lib/jobs.db":       "/var/lib/jobs.db",
		"SQLite:///var/lib/jobs.db":       "/var/lib/jobs.db",
		"sqlite:///a%20b/%3F%23%25.db":    "/a b/?#%.db",
		"sqlite:/a b/100%.db":             "/a b/100%.db",
		"sqlite:///ключ.db":               "/ключ.db",
		"sqlite:///%D0%BA%D0%BB%D1%8E.db": "/клю.db",
		"sqlite:///a&b=c.db":              "/a&b=c.db",
	} {
		if got, err := sqlite.ParseURL(address); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", address, got, err, want)
		}
	}
	for address, why := range map[string]string{
		"":                          "sqlite:",
		"jobs.db":                   "sqlite:",
		"postgres://host/db":        "sqlite:",
		"sqlite":                    "sqlite:",
		"sqlite::memory:":           "keeps nothing",
		"sqlite://:memory:":         "this machine",
		"sqlite:///:memory:":        "keeps nothing",
		"sqlite:file::memory:":      "keeps nothing",
		"sqlite:jobs.db?mode=ro":    "parameters",
		"sqlite:jobs.db#x":          "%23",
		"sqlite:///jobs.db?mode=ro": "parameters",
		"sqlite:///jobs.db?":        "parameters",
		"sqlite:///jobs.db#":        "fragment",
		"sqlite:///jobs.db#x":       "fragment",
		"sqlite://host/jobs.db":     "this machine",
		"sqlite://jobs.db":          "sqlite:relative/path",
		"sqlite://user:pw@/jobs.db": "this machine",
		"sqlite://":                 "names no file",
		"sqlite:///":                "folder",
		"sqlite:data/":              "folder",
		"sqlite:~/jobs.db":          "in full",
		"sqlite:file:/tmp/jobs.db":  "two schemes",
		"sqlite:FILE:jobs.db":       "two schemes",
		"sqlite:///100%.db":         "%25",
		"sqlite:///a%00b":           "UTF-8",
		"sqlite:///%ff":             "UTF-8",
		"sqlite:\xff":               "UTF-8",
	} {
		if got, err := sqlite.ParseURL(address); !errors.Is(err, holdfast.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %q, %v; want an ErrInvalid that says %q", address, got, err, why)
		}
	}
}

func TestParseURLDefault(t *testing.T) {
	t.Parallel()
	none := errors.New("there is no home")
	for _, c := range []struct {
		system, home string
		variables    map[string]string
		err          error
		want         string
	}{
		{"linux", "/home/ann", nil, nil, "/home/ann/.local/share/holdfast/holdfast.db"},
		{"linux", "/home/ann", map[string]string{"XDG_DATA_HOME": "/data"}, nil, "/data/holdfast/holdfast.db"},
		{"linux", "/home/ann", map[string]string{"XDG_DATA_HOME": "data"}, nil, "/home/ann/.local/share/holdfast/holdfast.db"},
		{"linux", "", map[string]string{"XDG_DATA_HOME": "/data"}, none, "/data/holdfast/holdfast.db"},
		{"darwin", "/Users/ann", map[string]string{"LocalAppData": "/x"}, nil, "/Users/ann/.local/share/holdfast/holdfast.db"},
		{"windows", "/users/ann", map[string]string{"LocalAppData": "/users/ann/local"}, nil, "/users/ann/local/holdfast/holdfast.db"},
		{"linux", "", nil, none, ""},
		{"linux", "", nil, nil, ""},
		{"linux", "relative", nil, nil, ""},
	} {
		got, err := sqlite.Parse("sqlite:", c.system, c.home, c.variables, c.err)
		if filepath.ToSlash(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
		if c.want == "" && (!errors.Is(err, holdfast.ErrInvalid) || holdfast.HintOf(err).Kind != holdfast.HintSetDatabase) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// The URL of any path leads back to that path.
func TestParseURLRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		path := "/" + rapid.StringMatching(`[^\x00~][^\x00]{0,30}[^\x00/]`).Draw(t, "path")
		if strings.Contains(path, ":memory:") {
			t.Skip("ParseURL refuses this path")
		}
		address := "sqlite://" + (&url.URL{Path: path}).EscapedPath()
		if got, err := sqlite.ParseURL(address); err != nil || got != path {
			t.Fatalf("%q is %q, %v; want %q", address, got, err, path)
		}
	})
}

func FuzzParseURL(f *testing.F) {
	for _, seed := range []string{"sqlite:", "sqlite:a", "sqlite:///a%20b", "sqlite://h/p?q#f", "sqlite::memory:", "sqlite:///%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, address string) {
		path, err := sqlite.ParseURL(address)
		switch {
		case err != nil && path != "":
			t.Errorf("%q: %q and %v", address, path, err)
		case err != nil && !errors.Is(err, holdfast.ErrInvalid):
			t.Errorf("%q: %v is not an ErrInvalid", address, err)
		case err != nil && (len(err.Error()) < 15 || !utf8.ValidString(err.Error()) || strings.ContainsAny(err.Error(), "\x00\n\x1b")):
			t.Errorf("%q: the error %q is too short or unprintable", address, err)
		case err == nil && (path == "" || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0) || !utf8.ValidString(path)):
			t.Errorf("%q is %q", address, path)
		case err == nil && strings.HasPrefix(path, "/"): // the URL of any path leads back to that path
			back := "sqlite://" + (&url.URL{Path: path}).EscapedPath()
			if reparsed, err := sqlite.ParseURL(back); err != nil || reparsed != path {
				t.Errorf("%q is %q, and %q is %q, %v", address, path, back, reparsed, err)
			}
		}
	})
}
