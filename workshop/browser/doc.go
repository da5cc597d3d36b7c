// Package browser tests the web console in a real browser, Chromium without a window. The console runs in the process of
// the test, over a file of its own, with a worker and a janitor. So a retry really runs, and its outcome comes back by
// the live stream of the page. A test that kills a worker runs the program as processes, on servers.
//
// A test waits for the mutations of the page, never for time. A violation of the Content-Security-Policy, an error in the
// console of the browser and an exception fail the test.
//
// The tests are a separate module, because the driver of the browser is a dependency that the product does not need. They
// skip if there is no Chromium: set CHROMIUM to its path, or install chromium. A test that needs servers skips without
// DATABASE_URL and AMQP_URL. With CI=true and HOLDFAST_TEST_ALL=1, a test fails instead of being skipped.
//
// To write the screenshots of all pages into bin/screenshots, run go test -run Screenshots -update. It also replaces those
// in docs/images; docs/images has only pictures that a page of the docs shows.
package browser
