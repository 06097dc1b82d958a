// Package compose holds the tests of docker-compose.yml and of the image: what of them can be checked without a container engine.
// The file is read by the library that Docker Compose reads it with. The long tests run the programs of the images themselves, built
// from the same sources, against a real PostgreSQL: in the file's order, with the file's commands, environments and health checks.
package compose
