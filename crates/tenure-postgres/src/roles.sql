-- A role with the least rights that taking part needs: GRANT tenure_member TO your_login.
DO $$ BEGIN
    CREATE ROLE tenure_member NOLOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
GRANT USAGE ON SCHEMA tenure TO tenure_member;
GRANT SELECT, INSERT, UPDATE ON tenure.life, tenure.lease, tenure.members, tenure.hint, tenure.fence
    TO tenure_member;
GRANT SELECT, INSERT, DELETE ON tenure.history TO tenure_member;
GRANT EXECUTE ON FUNCTION tenure.enter TO tenure_member;
