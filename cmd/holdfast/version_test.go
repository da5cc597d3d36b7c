package main

import (
	"archive/zip"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/workshop/slow"
)

func TestBuildVersion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ linked, recorded, want string }{
		"a linked version wins":           {"v1.2.3-4-gabc", "v1.0.0", "v1.2.3-4-gabc"},
		"go install of a release":         {"", "v1.0.0", "v1.0.0"},
		"go build in a clone":             {"", "v0.0.0-20260101000000-abcdefabcdef+dirty", "v0.0.0-20260101000000-abcdefabcdef+dirty"},
		"go build without version stamps": {"", "(devel)", "dev"},
		"go test":                         {"", "", "dev"},
	} {
		got := buildVersion(c.linked, func() (*debug.BuildInfo, bool) {
			return &debug.BuildInfo{Main: debug.Module{Version: c.recorded}}, true
		})
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if got := buildVersion("", func() (*debug.BuildInfo, bool) { return nil, false }); got != "dev" {
		t.Errorf("without build information: got %q, want dev", got)
	}
}

// TestGoInstallReportsTheRelease publishes this module as v0.9.0 in a folder that serves as a module proxy. Then it
// installs the command from there, as a user does.
func TestGoInstallReportsTheRelease(t *testing.T) {
	t.Parallel()
	slow.Skip(t)
	const module, release = "github.com/holdfastq/holdfast", "v0.9.0"
	proxy, bin := t.TempDir(), t.TempDir()
	publish(t, "../..", proxy, module, release)
	downloads, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	install := exec.Command("go", "install", "-modcacherw", "-trimpath", module+"/cmd/holdfast@latest")
	install.Dir = t.TempDir() // outside of any module
	install.Env = append(os.Environ(), "GOBIN="+bin, "GOMODCACHE="+t.TempDir(), "GOFLAGS=", "GOWORK=off", "GOSUMDB=off", "CGO_ENABLED=0", "GOPRIVATE=",
		"GOPROXY="+fileURL(proxy)+","+fileURL(filepath.Join(strings.TrimSpace(string(downloads)), "cache", "download")))
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(bin, "holdfast"), "version").Output()
	if want := "holdfast " + release + " (" + runtime.Version() + ","; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("got %q, %v, want it to begin with %q", out, err, want)
	}
}

func fileURL(path string) string { return "file://" + filepath.ToSlash(path) }

// publish writes the module in folder root to a proxy, in the layout of the module proxy protocol.
func publish(t *testing.T, root, proxy, module, version string) {
	t.Helper()
	folder := filepath.Join(proxy, module, "@v")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"list": version + "\n", version + ".info": `{"Version":"` + version + `","Time":"2026-01-01T00:00:00Z"}`, version + ".mod": string(mod),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := zipModule(root, filepath.Join(folder, version+".zip"), module+"@"+version); err != nil {
		t.Fatal(err)
	}
}

// zipModule packs the files below root. It leaves out nested modules and hidden folders, which a module does not have.
func zipModule(root, path, prefix string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	pack := zip.NewWriter(file)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && name != "." && (strings.HasPrefix(entry.Name(), ".") || name == "bin" || isFile(filepath.Join(path, "go.mod"))):
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		into, err := pack.Create(prefix + "/" + filepath.ToSlash(name))
		if err != nil {
			return err
		}
		from, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(into, from)
		return errors.Join(err, from.Close())
	})
	return errors.Join(err, pack.Close(), file.Close())
}

func isFile(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
