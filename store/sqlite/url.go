package sqlite

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/holdfastq/holdfast"
)

const scheme = "sqlite:"

// ParseURL returns the path that a URL names. It may be relative.
//
//	sqlite:                 the default file in the user's home
//	sqlite:jobs.db          a file in the working directory
//	sqlite:/var/lib/jobs.db
//	sqlite:///var/lib/a%20b.db
//
// Only the form with // is a URL in which % stands for a byte; in the others every character is
// part of the name, except ? and #, which are refused. Errors are ErrInvalid.
func ParseURL(address string) (path string, err error) {
	return environment{os.Getenv, os.UserHomeDir, runtime.GOOS}.parse(address)
}

// environment is what the default path depends on.
type environment struct {
	variable func(string) string
	home     func() (string, error)
	system   string
}

func (e environment) parse(address string) (string, error) {
	if len(address) < len(scheme) || !strings.EqualFold(address[:len(scheme)], scheme) {
		return "", fmt.Errorf("%w: the URL %.100q does not begin with %s", holdfast.ErrInvalid, address, scheme)
	}
	rest := address[len(scheme):]
	var err error
	switch {
	case rest == "":
		return e.defaultPath()
	case strings.HasPrefix(rest, "//"):
		rest, err = hierarchical(address)
	case strings.ContainsAny(rest, "?#"):
		err = fmt.Errorf("%w: the URL %.100q has ? or #, but a database in a file has no parameters; if that is its name write sqlite:///path with %%3F or %%23", holdfast.ErrInvalid, address)
	}
	if err == nil {
		err = usable(address, rest)
	}
	if err != nil {
		return "", err
	}
	return rest, nil
}

// hierarchical reads the form with //.
func hierarchical(address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", fmt.Errorf("%w: the URL %.100q: write %% as %%25", holdfast.ErrInvalid, address)
	}
	switch {
	case u.Host != "" || u.User != nil:
		return "", fmt.Errorf("%w: the URL %.100q names the host %q, but the file is on this machine; write sqlite:///absolute/path or sqlite:relative/path", holdfast.ErrInvalid, address, u.Host)
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(address, "#"):
		return "", fmt.Errorf("%w: the URL %.100q has parameters or a fragment, but a database in a file has none; if they are part of the name write %%3F and %%23", holdfast.ErrInvalid, address)
	}
	return u.Path, nil
}

// usable reports a path that cannot be meant.
func usable(address, path string) error {
	switch {
	case path == "":
		return fmt.Errorf("%w: the URL %.100q names no file; write sqlite:/path/to/holdfast.db, or sqlite: for the default one", holdfast.ErrInvalid, address)
	case strings.Contains(path, ":memory:"):
		return fmt.Errorf("%w: the URL %.100q keeps nothing: a queue in memory is lost with its process; name a file", holdfast.ErrInvalid, address)
	case strings.HasSuffix(path, "/"):
		return fmt.Errorf("%w: the URL %.100q names a folder; add the name of a file", holdfast.ErrInvalid, address)
	case strings.HasPrefix(path, "~"):
		return fmt.Errorf("%w: nothing expands the ~ in the URL %.100q; write the path in full", holdfast.ErrInvalid, address)
	case strings.ContainsRune(path, 0) || !utf8.ValidString(path):
		return fmt.Errorf("%w: the path in the URL %.100q is not plain UTF-8 text", holdfast.ErrInvalid, address)
	}
	return nil
}

// defaultPath is where the file is if nobody says otherwise.
func (e environment) defaultPath() (string, error) {
	const name = "holdfast.db"
	if data := e.variable("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "holdfast", name), nil
	}
	if e.system == "windows" {
		if data := e.variable("LocalAppData"); data != "" {
			return filepath.Join(data, "holdfast", name), nil
		}
	}
	home, err := e.home()
	if err != nil || !filepath.IsAbs(home) {
		return "", holdfast.WithHint(fmt.Errorf("%w: there is no home directory to keep the database in", holdfast.ErrInvalid), anotherFile)
	}
	return filepath.Join(home, ".local", "share", "holdfast", name), nil
}
