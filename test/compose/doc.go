// Package compose holds the tests of docker-compose.yml and of the image, as far as they need no container engine. The
// file is read with Docker Compose's own library. The long tests run the programs of the images themselves, built from
// the same sources, against a real PostgreSQL: in the file's order, with the file's commands, environments and health
// checks.
package compose
