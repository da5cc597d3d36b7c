package cron_test

import (
	"archive/zip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/cron"
)

func TestZonesMeanTheSameOnEveryMachine(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "CST6CDT", "Asia/Calcutta"} {
		if zone, err := cron.Zone(name); err != nil || zone == nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{
		"Local", "local", "localtime", "posixrules", "Factory", "posix/Europe/Berlin", "right/Europe/Berlin", "europe/berlin", "EUROPE/BERLIN",
		"Europe//Berlin", "./Europe/Berlin", "Europe/Berlin/", " Europe/Berlin", "Europe/Berlin\n", "../UTC", "/etc/localtime", "Europe", "+02:00", "CEST",
	} {
		if _, err := cron.Zone(name); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// The list of names is that of the database in the Go distribution, except for new names.
func TestZonesAreThoseOfTheDatabase(t *testing.T) {
	t.Parallel()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Skip(err) // a distribution of Go may leave it out
	}
	defer archive.Close()
	var names []string
	for _, file := range archive.File {
		if !strings.HasSuffix(file.Name, "/") && file.Name != "Factory" {
			names = append(names, file.Name)
		}
	}
	stored, err := os.ReadFile("zones.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.Lines(string(stored)) {
		if !slices.Contains(names, strings.TrimSpace(name)) {
			t.Errorf("the database has no %s", name)
		}
	}
	// A newer version of Go may have more names.
	if missing := len(names) - strings.Count(string(stored), "\n"); missing > 20 {
		t.Errorf("zones.txt lacks %d names of the database; list those of zoneinfo.zip without Factory", missing)
	}
}
